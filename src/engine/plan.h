#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::engine {

/// Identifies a row for its whole life.
enum class RowId : uint64_t {};

/// What the scheduler may know of a row.
struct RowState {
  RowId id;
  int64_t pending;           // known tokens that are not in the caches yet; at least 1
  bool blocked;              // its consumer does not keep up: no token may be produced
  int64_t most = INT64_MAX;  // until the end of its prefill step, or until its precision changes
  int64_t atomic = 0;        // tokens that one forward must hold; 0 = the step may be split
  int64_t waited = 0;        // iterations since it was last in a forward
};

/// `tokens` of one row in the next forward; a token is sampled iff they are all that is pending.
struct PlannedGroup {
  RowId id;
  int64_t tokens;
  bool samples;
  bool operator==(const PlannedGroup&) const = default;
};

/// One iteration: decode groups first, then prefill groups, each in order of arrival.
struct Plan {
  std::vector<PlannedGroup> groups;
  bool empty() const { return groups.empty(); }
};

/// "1:1* 4:128", for logs and tests: row:tokens, * = samples.
std::string to_string(const Plan& plan);

}  // namespace cohort::engine
