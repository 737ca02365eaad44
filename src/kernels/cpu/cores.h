#pragma once

#include <string>
#include <vector>

namespace cohort::kernels::cpu {

/// How many threads can compute at full speed on the processors `allowed`: those that share a
/// core count once, and a control group's CPU quota is rounded down. At least 1.
///   root    of the files in which the system describes itself
///   source  Linux sysfs, cpu/cpuN/topology; cgroup v2 cpu.max, v1 cpu.cfs_quota_us
int usable_cores(const std::vector<int>& allowed, const std::string& root = "");
/// The same on those that this process may run on.
int usable_cores();

}  // namespace cohort::kernels::cpu
