#pragma once

#include <span>

#include "engine/plan.h"

namespace cohort::engine {

/// Prompt tokens that a forward may take.
struct SchedulerLimits {
  int64_t prefill_tokens = 2048;  // over all rows
  int64_t mixed_tokens = 128;     // the same beside answers that are being decoded; 0 = none
};

/// Decides what the next forward holds. A row with one pending token decodes; one with more
/// prefills: there are no phases, only token counts.
///   budget  prefilling rows share it in order of arrival, each max(1, rest / rows left); what a
///           short prompt leaves goes on to the next
///   atomic  a step that must not be split ignores the budget and has the prefill part of a forward
///           to itself. It takes turns with the other rows: who has waited longest goes first
///   thread  any; pure
Plan plan_iteration(std::span<const RowState> rows, const SchedulerLimits& limits);

/// Whether the row decodes in the next forward.
inline bool decodes(const RowState& row) {
  return row.pending == 1 && !row.blocked;
}

}  // namespace cohort::engine
