#pragma once

#include <mlx/mlx.h>

#include <optional>

#include "base/settings.h"
#include "engine/forward.h"

namespace cohort::model {
class Model;
}

namespace cohort::engine {

/// The forward of a loaded model. Built, used and let go of on the engine thread: the only place of
/// the engine that calls MLX.
class ModelForward final : public Forward {
 public:
  /// `model`, which runs on `device`, outlives this object.
  ModelForward(model::Model& model, Device device) : model_(model), device_(device) {}

  kernels::cpu::BlockCopy block_copy() override;
  void begin() override;
  std::span<float> run(std::span<const model::TokenGroup> groups,
                       std::span<const size_t> samples) override;
  const ForwardTimes& times() const override { return times_; }
  void release_memory() override;

 private:
  model::Model& model_;
  const Device device_;
  std::optional<mlx::core::array> logits_;
  ForwardTimes times_;
};

}  // namespace cohort::engine
