#pragma once

#include <mlx/mlx.h>

#include <optional>

#include "engine/forward.h"

namespace cohort::model {
class Model;
}

namespace cohort::engine {

/// The forward of a loaded model. Built, used and let go of on the engine thread: the only place of
/// the engine that calls MLX.
class ModelForward final : public Forward {
 public:
  /// `model` outlives this object.
  explicit ModelForward(model::Model& model) : model_(model) {}

  void begin() override;
  std::span<float> run(std::span<const model::TokenGroup> groups,
                       std::span<const size_t> samples) override;
  const ForwardTimes& times() const override { return times_; }
  void release_memory() override;

 private:
  model::Model& model_;
  std::optional<mlx::core::array> logits_;
  ForwardTimes times_;
};

}  // namespace cohort::engine
