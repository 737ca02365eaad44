#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::store {

/// Counts since the start; files and bytes are those of this identity that are known now.
struct SsdStats {
  size_t files = 0;
  uint64_t bytes = 0;
  size_t pending_writes = 0;
  size_t pending_bytes = 0;
  uint64_t hits = 0;    // rows and objects restored
  uint64_t misses = 0;  // no file, or one that was of no use
  uint64_t hit_tokens = 0;
  uint64_t written = 0;  // files
  uint64_t written_bytes = 0;
  uint64_t restored_bytes = 0;
  uint64_t removed = 0;  // files, for room or because a longer one serves as well
  uint64_t damaged = 0;  // files that were no whole record
  uint64_t foreign = 0;  // files that were written for something else
  uint64_t dropped = 0;  // snapshots and objects that were not written: too many, or too large
  uint64_t write_errors = 0;
  uint64_t read_errors = 0;
};

}  // namespace cohort::store
