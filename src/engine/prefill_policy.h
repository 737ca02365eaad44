#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/request.h"

namespace cohort::engine {

/// How long the steps are in which a prompt is read. Constant once the engine runs.
///   source  mlx-bun 0.5.0, prefill-policy
struct PrefillPolicy {
  static constexpr int64_t kChunk = 2048;
  static constexpr int64_t kLeastChunk = 8;
  static constexpr size_t kMostWorkspace = size_t{1} << 30;

  int64_t chunk = kChunk;         // tokens
  bool exact = false;             // the user's: kept whatever it takes
  bool split_last_token = false;  // the last token of a prompt gets a forward of its own
  /// Bytes that attention needs beside its caches for a chunk that ends at `context` tokens; null
  /// for models without recurrent layers, whose chunks need not shrink.
  std::function<size_t(int64_t chunk, int64_t context)> workspace = nullptr;

  /// The longest step from `position` on: halved while its workspace is too large.
  int64_t chunk_at(int64_t position) const;
};

/// A stretch of one row's tokens that is planned at once. Forwards take it in pieces, as budgets
/// allow; what joins or leaves meanwhile does not move its end.
struct PrefillStep {
  int64_t end = 0;      // position
  bool atomic = false;  // one forward holds it
  bool operator==(const PrefillStep&) const = default;
};

/// Where the steps of one row's known tokens may end.
struct PrefillRoute {
  int64_t tokens = 0;                 // known: the last step ends here
  std::span<const int64_t> stops;     // positions that no step passes: forks, snapshots
  std::span<const TokenSpan> atomic;  // one forward each
};

/// The step that begins at `position`, which is before the route's end.
PrefillStep next_step(const PrefillPolicy& policy, const PrefillRoute& route, int64_t position);

}  // namespace cohort::engine
