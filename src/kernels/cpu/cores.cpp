#include "kernels/cpu/cores.h"

#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <fstream>
#include <set>

namespace cohort::kernels::cpu {
namespace {

/// Whole processors of a control group's quota; INT_MAX if it has none.
int quota_cores(const std::string& sys) {
  int64_t quota = 0, period = 0;
  std::ifstream both(sys + "/fs/cgroup/cpu.max");  // "max PERIOD" where there is none
  if (!(both >> quota >> period)) {
    const std::string group = sys + "/fs/cgroup/cpu/cpu.cfs_";
    std::ifstream(group + "quota_us") >> quota;  // -1 where there is none
    std::ifstream(group + "period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return INT_MAX;
  return static_cast<int>(std::clamp<int64_t>(quota / period, 1, INT_MAX));
}

}  // namespace

int usable_cores(const std::vector<int>& allowed, const std::string& sys) {
  std::set<std::string> cores;
  for (int cpu : allowed) {
    const std::string name = "cpu" + std::to_string(cpu);
    std::string siblings;  // the same list for each of them
    std::ifstream(sys + "/devices/system/cpu/" + name + "/topology/thread_siblings_list") >>
        siblings;
    cores.insert(siblings.empty() ? name : siblings);
  }
  return std::max(1, std::min(static_cast<int>(cores.size()), quota_cores(sys)));
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
