#include "kernels/cpu/cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace cohort::kernels::cpu {
namespace {

/// A machine as sysfs describes it: four processors on two cores.
class Machine {
 public:
  Machine() : sys_(::testing::TempDir() + "cores_test_sys") {
    std::filesystem::remove_all(sys_);
    for (int cpu = 0; cpu < 4; ++cpu) {
      write("devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            cpu % 2 == 0 ? "0,2\n" : "1,3\n");
    }
  }
  ~Machine() { std::filesystem::remove_all(sys_); }
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = sys_ + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int cores(const std::vector<int>& allowed) const { return usable_cores(allowed, sys_); }

 private:
  const std::string sys_;
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
  const std::vector<int> all{0, 1, 2, 3};
  machine.write("fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  for (const auto& [quota, cores] : {std::pair{"-1\n", 2}, {"150000\n", 1}, {"50000\n", 1}}) {
    machine.write("fs/cgroup/cpu/cpu.cfs_quota_us", quota);
    EXPECT_EQ(machine.cores(all), cores) << quota;
  }
  for (const auto& [max, cores] :
       {std::pair{"max 100000\n", 2}, {"190000 100000\n", 1}, {"800000 100000\n", 2}}) {
    machine.write("fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    machine.write("fs/cgroup/cpu.max", max);
    EXPECT_EQ(machine.cores(all), cores) << max;
  }
}

}  // namespace
}  // namespace cohort::kernels::cpu
