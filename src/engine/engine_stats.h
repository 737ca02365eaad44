#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/metrics.h"
#include "engine/request.h"

namespace cohort::engine {

/// From 1 ms to 100 s, for all that is measured in seconds.
inline const std::vector<double> kSecondsBounds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                                   0.5,   1,     2,     5,    10,   20,   50,  100};

/// What the engine does now and has done since the start, for /stats, /metrics and tests. Written
/// by the engine, read from any thread.
struct EngineStats {
  // Now.
  std::atomic<size_t> rows = 0;                   // alive
  std::atomic<size_t> waiting = 0;                // requests accepted, not yet rows
  std::atomic<size_t> waiting_tokens = 0;         // of their prompts
  std::atomic<size_t> parked = 0;                 // rows that gave way to others and will go on
  std::atomic<size_t> kv_used_bytes = 0;          // blocks of keys and values in use
  std::atomic<size_t> kv_held_bytes = 0;          // taken from the system for them
  std::atomic<size_t> kv_limit_bytes = SIZE_MAX;  // how many may be in use; SIZE_MAX = no limit

  std::atomic<size_t> prefixes = 0;      // kept of earlier rows
  std::atomic<size_t> prefix_bytes = 0;  // of kv_used_bytes; rows may share them

  // Since the start.
  std::atomic<uint64_t> iterations = 0;
  std::atomic<uint64_t> failed_forwards = 0;
  std::atomic<uint64_t> preemptions = 0;    // times that a row was parked
  std::atomic<uint64_t> prompt_tokens = 0;  // of requests that became rows, cached ones included
  std::atomic<uint64_t> cached_tokens = 0;  // of these, not computed again
  std::atomic<uint64_t> prefix_hits = 0;
  std::atomic<uint64_t> prefix_misses = 0;
  std::atomic<uint64_t> prefix_evictions = 0;
  std::atomic<uint64_t> generated_tokens = 0;  // all choices
  std::atomic<uint64_t> resumed_answers = 0;   // that went on from a checkpoint of an earlier run
  std::array<std::atomic<uint64_t>, 4> ended = {};  // requests, by their last finish

  void count_end(FinishReason reason) { ++ended[static_cast<size_t>(reason)]; }
  /// It could not be said, and the request goes on to end in another way.
  void take_back_end(FinishReason reason) { --ended[static_cast<size_t>(reason)]; }

  // Distributions since the start.
  Histogram time_to_first_token_s{kSecondsBounds};  // from submit, of a request
  Histogram inter_token_s{kSecondsBounds};          // between two tokens of a row
  Histogram queue_s{kSecondsBounds};                // from submit to row
  Histogram iteration_s{kSecondsBounds};
  Histogram batch_rows{{1, 2, 4, 8, 16, 32, 64, 128, 256}};  // rows of one forward
};

}  // namespace cohort::engine
