#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace cohort::engine {

Plan plan_iteration(std::span<const RowState> rows, const SchedulerLimits& limits) {
  Plan plan;
  int64_t prefilling = 0;
  for (const RowState& row : rows) {
    if (row.pending > 1) ++prefilling;
    if (row.pending == 1 && !row.blocked) plan.groups.push_back({row.id, 1, true});
  }
  int64_t budget = plan.empty() ? limits.prefill_tokens : limits.mixed_tokens;
  for (const RowState& row : rows) {
    if (row.pending <= 1) continue;
    const int64_t share = std::max<int64_t>(1, budget / prefilling--);
    // A blocked row may prefill, but not the last token, which would produce one.
    const int64_t tokens = std::min({row.blocked ? row.pending - 1 : row.pending, share, row.most});
    plan.groups.push_back({row.id, tokens, tokens == row.pending});
    budget -= tokens;
  }
  return plan;
}

std::string to_string(const Plan& plan) {
  std::string text;
  for (const PlannedGroup& group : plan.groups) {
    text += fmt::format("{}{}:{}{}", text.empty() ? "" : " ", static_cast<uint64_t>(group.id),
                        group.tokens, group.samples ? "*" : "");
  }
  return text;
}

}  // namespace cohort::engine
