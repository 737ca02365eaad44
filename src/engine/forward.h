#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "model/token_group.h"

namespace cohort::engine {

using Clock = std::chrono::steady_clock;

/// When the parts of a forward were done, for traces and budgets.
struct ForwardTimes {
  Clock::time_point begun, built, evaluated, projected;
};

/// What the engine asks of a model: one forward over the token groups of many rows. All else of
/// the engine is free of MLX, and is tested without it.
///   thread  engine
class Forward {
 public:
  virtual ~Forward() = default;

  /// How the blocks of its rows are copied; see kv::KvMemory.  thread  any, before begin()
  virtual kernels::cpu::BlockCopy block_copy() { return {}; }
  /// Once, before all other calls.
  virtual void begin() {}
  /// Feeds all groups in one pack. Their space is reserved; the caller commits, or repeats.
  ///   samples  the groups whose last token's logits are wanted
  ///   returns  [samples, vocab], to be changed at will; valid until the next call
  virtual std::span<float> run(std::span<const model::TokenGroup> groups,
                               std::span<const size_t> samples) = 0;
  /// Of the last run().
  virtual const ForwardTimes& times() const = 0;
  /// Memory that is kept for the next forward goes back: after a long prompt, and when idle.
  virtual void release_memory() = 0;
};

}  // namespace cohort::engine
