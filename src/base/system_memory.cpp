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

size_t available_to_system() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (size_t kilobytes = 0; file >> name;) {
    if (name == "MemAvailable:" && file >> kilobytes) return kilobytes << 10;
  }
  return SIZE_MAX;
}

}  // namespace

size_t available_memory_bytes() {
  const size_t limit = number_in("/sys/fs/cgroup/memory.max");
  const size_t current = number_in("/sys/fs/cgroup/memory.current");
  size_t in_group = SIZE_MAX;
  if (limit != SIZE_MAX && current != SIZE_MAX) in_group = limit - std::min(limit, current);
  return std::min(available_to_system(), in_group);
}

}  // namespace cohort
