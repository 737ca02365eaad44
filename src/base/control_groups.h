#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cohort {

/// Folders of the control groups that this process is in, from the outermost one that is mounted
/// to its own. A limit of any of them holds. Some may not be there: a container sees its own only,
/// where the outermost would be.
///   controller  "cpu", "memory"
///   root        of the files in which the system describes itself
///   source      cgroups(7), /proc/PID/cgroup
std::vector<std::filesystem::path> control_groups(const std::string& controller,
                                                  const std::string& root = "");

}  // namespace cohort
