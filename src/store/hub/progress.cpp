#include "store/hub/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/say.h"

namespace cohort::store {

Progress::Progress(std::string name, uint64_t total_bytes)
    : name_(std::move(name)),
      total_bytes_(total_bytes),
      on_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {
  if (!on_terminal_) say("downloading {} ({})\n", name_, format_bytes(total_bytes));
}

void Progress::update(uint64_t done_bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (!on_terminal_ || now - last_draw_ < std::chrono::milliseconds(100)) return;
  last_draw_ = now;
  draw(done_bytes);
}

void Progress::finish() {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  if (on_terminal_) {
    draw(total_bytes_);
    say("\n");
  } else {
    say("downloaded {} in {:.1f} s\n", name_, seconds.count());
  }
}

void Progress::draw(uint64_t done_bytes) const {
  constexpr int kWidth = 28;
  const double share =
      total_bytes_ == 0
          ? 1.0
          : std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes_));
  const int filled = static_cast<int>(share * kWidth);
  say("\r{:<32.32} [{:=<{}}{:<{}}] {:3.0f} % of {}\033[K", name_, "", filled, "", kWidth - filled,
      share * 100, format_bytes(total_bytes_));
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace cohort::store
