#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace cohort::store {

/// Shows how far a download is, on stderr: a bar on a terminal, else one line at start and end.
class Progress {
 public:
  Progress(std::string name, uint64_t total_bytes);
  void update(uint64_t done_bytes);
  void finish();

 private:
  void draw(uint64_t done_bytes) const;

  const std::string name_;
  const uint64_t total_bytes_;
  const bool on_terminal_;
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_draw_;
};

/// "98.4 MB", decimal units.
std::string format_bytes(uint64_t bytes);

}  // namespace cohort::store
