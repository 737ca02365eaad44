#include "base/system_memory.h"

#include <gtest/gtest.h>

#include "tests/support/described_system.h"

namespace cohort {
namespace {

using test::DescribedSystem;

TEST(SystemMemory, IsWhatTheSystemCallsAvailable) {
  const DescribedSystem system;
  EXPECT_EQ(available_memory_bytes(system.root()), SIZE_MAX);
  system.write("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:  1000 kB\n");
  EXPECT_EQ(available_memory_bytes(system.root()), 1000u << 10);
}

TEST(SystemMemory, IsWithinTheTightestLimitAboveAProcess) {
  const DescribedSystem system;
  system.write("proc/meminfo", "MemAvailable:  1000 kB\n");
  system.write("proc/self/cgroup", "0::/a.slice/b.service\n");
  const std::string slice = "sys/fs/cgroup/a.slice/", service = slice + "b.service/";
  system.write(slice + "memory.max", "max\n");
  system.write(slice + "memory.current", "700000\n");
  system.write(service + "memory.max", "500000\n");
  system.write(service + "memory.current", "300000\n");
  EXPECT_EQ(available_memory_bytes(system.root()), 200'000u);
  system.write(service + "memory.stat", "anon 5\ninactive_file 100000\nactive_file 7\n");
  EXPECT_EQ(available_memory_bytes(system.root()), 300'000u) << "pages of files can go";
  system.write(slice + "memory.max", "710000\n");
  EXPECT_EQ(available_memory_bytes(system.root()), 10'000u) << "what neighbours take is gone";
  system.write("sys/fs/cgroup/memory.max", "5000\n");
  system.write("sys/fs/cgroup/memory.current", "6000\n");
  EXPECT_EQ(available_memory_bytes(system.root()), 0u);
}

TEST(SystemMemory, IsWithinLimitsOfTheFirstVersionOfControlGroups) {
  const DescribedSystem system;
  system.write("proc/meminfo", "MemAvailable:  1000 kB\n");
  system.write("proc/self/cgroup", "3:cpu,cpuacct:/x\n2:memory:/a/b\n0::/init.scope\n");
  const std::string outer = "sys/fs/cgroup/memory/a/", inner = outer + "b/";
  system.write(inner + "memory.limit_in_bytes", "9223372036854771712\n");
  system.write(inner + "memory.usage_in_bytes", "300000\n");
  EXPECT_EQ(available_memory_bytes(system.root()), 1000u << 10);
  system.write(outer + "memory.limit_in_bytes", "500000\n");
  system.write(outer + "memory.usage_in_bytes", "400000\n");
  system.write(outer + "memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n");
  EXPECT_EQ(available_memory_bytes(system.root()), 150'000u);
}

}  // namespace
}  // namespace cohort
