#pragma once

#include <span>

#include "base/trace.h"
#include "engine/forward.h"

namespace cohort::engine {

/// When the parts of one iteration were done.
struct IterationTimes {
  Clock::time_point planned, reserved;  // around the reservation of memory
  ForwardTimes forward;                 // the last one, if there were two
  Clock::time_point sampled, committed;
};

/// One row of a forward.
struct TracedShare {
  Trace* trace = nullptr;
  int64_t tokens = 0;
  bool decodes = false;
  bool samples = false;
};

/// Adds the spans of an iteration to the traces of its rows, under one work id. Rows without a
/// trace count in its batch only.
void trace_iteration(std::span<const TracedShare> shares, const IterationTimes& times);

}  // namespace cohort::engine
