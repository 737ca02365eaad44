#include "base/system_memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/control_groups.h"

namespace cohort {
namespace {

/// The number in a file of one number; SIZE_MAX if there is none, or it says "max".
size_t number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  size_t number = 0;
  return file >> number ? number : SIZE_MAX;
}

/// The number that follows `name` in a file of names and numbers; SIZE_MAX if there is none.
size_t number_behind(const std::filesystem::path& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  for (size_t number = 0; file >> word;) {
    if (word == name && file >> number) return number;
  }
  return SIZE_MAX;
}

size_t available_to_system(const std::string& root) {
  const size_t kilobytes = number_behind(root + "/proc/meminfo", "MemAvailable:");
  return kilobytes == SIZE_MAX ? SIZE_MAX : kilobytes << 10;
}

/// How a version of control groups names what it says of memory.
struct Names {
  const char *limit, *current, *cached;
};
constexpr Names kVersions[] = {
    {"memory.max", "memory.current", "inactive_file"},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
};

size_t available_to_group(const std::filesystem::path& folder, const Names& names) {
  const size_t limit = number_in(folder / names.limit);
  const size_t current = number_in(folder / names.current);
  if (limit == SIZE_MAX || current == SIZE_MAX) return SIZE_MAX;
  // Pages of files that were read count as the group's, but go when they are needed.
  const size_t cached = number_behind(folder / "memory.stat", names.cached);
  const size_t used = current - std::min(current, cached == SIZE_MAX ? 0 : cached);
  return limit - std::min(limit, used);
}

}  // namespace

size_t available_memory_bytes(const std::string& root) {
  size_t bytes = available_to_system(root);
  for (const auto& folder : control_groups("memory", root)) {
    for (const Names& names : kVersions) bytes = std::min(bytes, available_to_group(folder, names));
  }
  return bytes;
}

size_t available_memory_bytes() {
  return available_memory_bytes("");
}

void return_freed_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace cohort
