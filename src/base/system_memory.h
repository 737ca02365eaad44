#pragma once

#include <cstddef>
#include <string>

namespace cohort {

/// Memory that this process could still take without swapping: what the system calls available,
/// within the limits of its control groups. SIZE_MAX where the system does not say.
///   root    of the files in which the system describes itself
///   source  proc(5), /proc/meminfo; Linux cgroup v2 memory.max, v1 memory.limit_in_bytes
size_t available_memory_bytes(const std::string& root);
size_t available_memory_bytes();

/// Gives the system what this process has freed; without this, much of it stays with the process.
///   cost  some milliseconds
void return_freed_memory();

}  // namespace cohort
