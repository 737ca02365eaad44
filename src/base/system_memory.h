#pragma once

#include <cstddef>

namespace cohort {

/// Memory that this process could still take without swapping: what the system calls available,
/// within the limit of its control group. SIZE_MAX where the system does not say.
///   source  proc(5), /proc/meminfo; Linux cgroup v2, memory.max and memory.current
size_t available_memory_bytes();

}  // namespace cohort
