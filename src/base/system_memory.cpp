#include "base/system_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace cohort {
namespace {

/// The number in a file of one number; SIZE_MAX if there is none, or it says "max".
size_t number_in(const char* path) {
  std::ifstream file(path);
  size_t number = 0;
  return file >> number ? number : SIZE_MAX;
}

/// The number that follows `name` in a file of names and numbers; SIZE_MAX if there is none.
size_t number_behind(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  for (size_t number = 0; file >> word;) {
    if (word == name && file >> number) return number;
  }
  return SIZE_MAX;
}

size_t available_to_system() {
  const size_t kilobytes = number_behind("/proc/meminfo", "MemAvailable:");
  return kilobytes == SIZE_MAX ? SIZE_MAX : kilobytes << 10;
}

}  // namespace

size_t available_memory_bytes() {
  const size_t limit = number_in("/sys/fs/cgroup/memory.max");
  const size_t current = number_in("/sys/fs/cgroup/memory.current");
  size_t in_group = SIZE_MAX;
  if (limit != SIZE_MAX && current != SIZE_MAX) {
    // Pages of files that were read count as the group's, but go when they are needed.
    const size_t cached = number_behind("/sys/fs/cgroup/memory.stat", "inactive_file");
    const size_t used = current - std::min(current, cached == SIZE_MAX ? 0 : cached);
    in_group = limit - std::min(limit, used);
  }
  return std::min(available_to_system(), in_group);
}

}  // namespace cohort
