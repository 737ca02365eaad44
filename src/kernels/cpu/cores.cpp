#include "kernels/cpu/cores.h"

#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/control_groups.h"

namespace cohort::kernels::cpu {
namespace {

/// Whole processors of the tightest quota of this process's control groups; INT_MAX if none has
/// one.
int quota_cores(const std::string& root) {
  int64_t cores = INT_MAX;
  for (const auto& folder : control_groups("cpu", root)) {
    int64_t quota = 0, period = 0;
    std::ifstream both(folder / "cpu.max");  // "max PERIOD" where there is none
    if (!(both >> quota >> period)) {
      std::ifstream(folder / "cpu.cfs_quota_us") >> quota;  // -1 where there is none
      std::ifstream(folder / "cpu.cfs_period_us") >> period;
    }
    if (quota > 0 && period > 0) cores = std::min(cores, std::max<int64_t>(quota / period, 1));
  }
  return static_cast<int>(cores);
}

}  // namespace

int usable_cores(const std::vector<int>& allowed, const std::string& root) {
  const std::filesystem::path cpus = root + "/sys/devices/system/cpu";
  std::set<std::string> cores;
  for (int cpu : allowed) {
    const std::string name = "cpu" + std::to_string(cpu);
    std::string siblings;  // the same list for each of them
    std::ifstream(cpus / name / "topology/thread_siblings_list") >> siblings;
    cores.insert(siblings.empty() ? name : siblings);
  }
  return std::max(1, std::min(static_cast<int>(cores.size()), quota_cores(root)));
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> allowed;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
    }
  }
  return usable_cores(allowed);
}

}  // namespace cohort::kernels::cpu
