#pragma once

#include <cstdlib>
#include <filesystem>

namespace cohort::test {

/// A folder that is gone in the end.
struct TempFolder {
  TempFolder()
      : path(
            ::mkdtemp((std::filesystem::temp_directory_path() / "cohort-XXXXXX").string().data())) {
  }
  ~TempFolder() { std::filesystem::remove_all(path); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::filesystem::path path;
};

}  // namespace cohort::test
