#include "kernels/cpu/cores.h"

#include <gtest/gtest.h>

#include "tests/support/described_system.h"

namespace cohort::kernels::cpu {
namespace {

/// Four processors on two cores.
class Machine : public cohort::test::DescribedSystem {
 public:
  Machine() {
    for (int cpu = 0; cpu < 4; ++cpu) {
      write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            cpu % 2 == 0 ? "0,2\n" : "1,3\n");
    }
  }
  int cores(const std::vector<int>& allowed = {0, 1, 2, 3}) const {
    return usable_cores(allowed, root());
  }
};

TEST(Cores, ThoseThatShareACoreCountOnce) {
  const Machine machine;
  EXPECT_EQ(machine.cores({0, 1, 2, 3}), 2);
  EXPECT_EQ(machine.cores({0, 2}), 1);
  EXPECT_EQ(machine.cores({1, 2}), 2);
  EXPECT_EQ(machine.cores({8, 9}), 2) << "processors that the system does not describe";
  EXPECT_EQ(machine.cores({}), 1);
}

TEST(Cores, AQuotaIsRoundedDownToWholeCores) {
  const Machine machine;
  for (const auto& [max, cores] :
       {std::pair{"max 100000\n", 2}, {"190000 100000\n", 1}, {"800000 100000\n", 2}}) {
    machine.write("sys/fs/cgroup/cpu.max", max);
    EXPECT_EQ(machine.cores(), cores) << max;
  }
  const Machine older;
  older.write("proc/self/cgroup", "2:cpu,cpuacct:/\n");
  older.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  for (const auto& [quota, cores] : {std::pair{"-1\n", 2}, {"150000\n", 1}, {"50000\n", 1}}) {
    older.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota);
    EXPECT_EQ(older.cores(), cores) << quota;
  }
}

TEST(Cores, TheTightestQuotaAboveAProcessCounts) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/system.slice/cohort.service\n");
  machine.write("sys/fs/cgroup/system.slice/cpu.max", "max 100000\n");
  machine.write("sys/fs/cgroup/system.slice/cohort.service/cpu.max", "150000 100000\n");
  EXPECT_EQ(machine.cores(), 1);
  machine.write("sys/fs/cgroup/system.slice/cohort.service/cpu.max", "400000 100000\n");
  EXPECT_EQ(machine.cores(), 2);
  machine.write("sys/fs/cgroup/system.slice/cpu.max", "50000 100000\n");
  EXPECT_EQ(machine.cores(), 1);
}

}  // namespace
}  // namespace cohort::kernels::cpu
