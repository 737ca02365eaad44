#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace cohort::engine {
namespace {

/// A row that prefills can move, unless the consumer of its answer has no room for the token that
/// all of its pending tokens, in one piece, would produce.
bool prefills(const RowState& row) {
  return row.pending > 1 && !(row.blocked && row.atomic == row.pending);
}

/// The rows that share the prefill part of the next forward: one atomic step, or all others.
std::vector<const RowState*> prefilling(std::span<const RowState> rows) {
  std::vector<const RowState*> all;
  for (const RowState& row : rows) {
    if (prefills(row)) all.push_back(&row);
  }
  if (all.empty()) return all;
  const auto first = std::ranges::max_element(
      all, [](const RowState* a, const RowState* b) { return a->waited < b->waited; });
  if ((*first)->atomic > 0) return {*first};
  std::erase_if(all, [](const RowState* row) { return row->atomic > 0; });
  return all;
}

}  // namespace

Plan plan_iteration(std::span<const RowState> rows, const SchedulerLimits& limits) {
  Plan plan;
  for (const RowState& row : rows) {
    if (decodes(row)) plan.groups.push_back({row.id, 1, true});
  }
  int64_t budget = plan.empty() ? limits.prefill_tokens : limits.mixed_tokens;
  if (budget == 0) return plan;
  const std::vector<const RowState*> sharing = prefilling(rows);
  auto left = static_cast<int64_t>(sharing.size());
  for (const RowState* row : sharing) {
    const int64_t share = std::max<int64_t>(1, budget / left--);
    // A blocked row may prefill, but not the last token, which would produce one.
    const int64_t able = std::min(row->blocked ? row->pending - 1 : row->pending, row->most);
    const int64_t tokens = row->atomic > 0 ? row->atomic : std::min(able, share);
    plan.groups.push_back({row->id, tokens, tokens == row->pending});
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
