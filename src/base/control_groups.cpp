#include "base/control_groups.h"

#include <fstream>

namespace cohort {

std::vector<std::filesystem::path> control_groups(const std::string& controller,
                                                  const std::string& root) {
  std::filesystem::path mount = root + "/sys/fs/cgroup", group;
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // HIERARCHY:CONTROLLERS:GROUP
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {  // version 1
      mount /= controller;
      group = line.substr(second + 1);
      break;
    }
    if (controllers.empty()) group = line.substr(second + 1);  // version 2
  }
  std::vector<std::filesystem::path> folders{mount};
  for (const std::filesystem::path& part : group.relative_path()) {
    if (part == "..") break;  // outside of what this process may see
    folders.push_back(folders.back() / part);
  }
  return folders;
}

}  // namespace cohort
