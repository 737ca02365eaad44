#include "engine/model_forward.h"

#include "kernels/device.h"
#include "model/model.h"

namespace cohort::engine {

namespace mx = mlx::core;

kernels::cpu::BlockCopy ModelForward::block_copy() {
  return model_.block_copy();
}

void ModelForward::begin() {
  kernels::use(device_);
}

std::span<float> ModelForward::run(std::span<const model::TokenGroup> groups,
                                   std::span<const size_t> samples) {
  logits_.reset();
  times_.begun = Clock::now();
  mx::array hidden = model_.forward(groups, nullptr);
  times_.built = Clock::now();
  hidden.eval();
  times_.evaluated = times_.projected = Clock::now();
  if (samples.empty()) return {};
  std::vector<int32_t> ends;  // of each group, in the pack
  int32_t packed = 0;
  for (const model::TokenGroup& group : groups) {
    packed += static_cast<int32_t>(group.ids.size());
    ends.push_back(packed);
  }
  std::vector<int32_t> rows;
  for (size_t sample : samples) rows.push_back(ends[sample] - 1);
  logits_ = model_.project(hidden, std::move(rows));
  logits_->eval();
  times_.projected = Clock::now();
  return {logits_->data<float>(), logits_->size()};
}

void ModelForward::release_memory() {
  logits_.reset();
  mx::clear_cache();
}

}  // namespace cohort::engine
