#pragma once

#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace cohort::test {

/// Files in which a system describes itself, below a root of their own.
class DescribedSystem {
 public:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = folder_.path / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string root() const { return folder_.path.string(); }

 private:
  const TempFolder folder_;
};

}  // namespace cohort::test
