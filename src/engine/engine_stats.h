#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cohort::engine {

/// Counters since the start, for /health and tests. Read from any thread.
struct EngineStats {
  std::atomic<size_t> rows = 0;     // alive now
  std::atomic<size_t> waiting = 0;  // requests accepted, not yet a row
  std::atomic<size_t> waiting_tokens = 0;  // of their prompts
  std::atomic<size_t> parked = 0;          // rows that gave up their memory and will go on
  std::atomic<uint64_t> preemptions = 0;
  std::atomic<uint64_t> iterations = 0;
  std::atomic<uint64_t> failed_forwards = 0;
  std::atomic<size_t> kv_used_bytes = 0;  // blocks of keys and values in use
  std::atomic<size_t> kv_held_bytes = 0;  // taken from the system for them
};

}  // namespace cohort::engine
