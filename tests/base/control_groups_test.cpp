#include "base/control_groups.h"

#include <gtest/gtest.h>

#include "tests/support/described_system.h"

namespace cohort {
namespace {

/// The folders for a file of these lines, relative to that of all groups.
std::vector<std::string> folders(const std::string& lines, const std::string& controller) {
  const test::DescribedSystem system;
  system.write("proc/self/cgroup", lines);
  std::vector<std::string> found;
  for (const std::filesystem::path& folder : control_groups(controller, system.root())) {
    found.push_back(folder.lexically_relative(system.root() + "/sys/fs/cgroup").string());
  }
  return found;
}

using Folders = std::vector<std::string>;

TEST(ControlGroups, AreThatOfAProcessAndAllAbove) {
  EXPECT_EQ(folders("0::/a.slice/b.scope\n", "cpu"), (Folders{".", "a.slice", "a.slice/b.scope"}));
  EXPECT_EQ(folders("0::/\n", "cpu"), (Folders{"."}));
  EXPECT_EQ(folders("0::/has:colons\n", "cpu"), (Folders{".", "has:colons"}));
}

TEST(ControlGroups, AreTheFirstVersionsWhereItHasTheController) {
  const std::string mixed =
      "5:cpuset:/other\n4:cpu,cpuacct:/a/b\n1:name=systemd:/c\n0::/unified/d\n";
  EXPECT_EQ(folders(mixed, "cpu"), (Folders{"cpu", "cpu/a", "cpu/a/b"}));
  EXPECT_EQ(folders(mixed, "cpuacct"), (Folders{"cpuacct", "cpuacct/a", "cpuacct/a/b"}));
  EXPECT_EQ(folders(mixed, "memory"), (Folders{".", "unified", "unified/d"}));
}

TEST(ControlGroups, OutsideOfWhatAProcessSeesAreNone) {
  EXPECT_EQ(folders("0::/../neighbour\n", "cpu"), (Folders{"."}));
  EXPECT_EQ(folders("", "cpu"), (Folders{"."}));
  EXPECT_EQ(folders("no\ngroups:\n", "cpu"), (Folders{"."}));
  EXPECT_EQ(control_groups("cpu", "/nowhere").size(), 1u);
}

}  // namespace
}  // namespace cohort
