#pragma once

#include <span>

#include "engine/plan.h"

namespace cohort::engine {

struct SchedulerLimits {
  int64_t prefill_tokens = 2048;  // prompt tokens of one forward, over all rows
  int64_t mixed_tokens = 128;     // the same while answers are being decoded beside it
};

/// Decides what the next forward holds. A row with one pending token decodes; one with more
/// prefills: there are no phases, only token counts.
///   budget  prefilling rows share it in order of arrival, each max(1, rest / rows left); what a
///           short prompt leaves goes on to the next
///   thread  any; pure
Plan plan_iteration(std::span<const RowState> rows, const SchedulerLimits& limits);

}  // namespace cohort::engine
