#pragma once

#include <string>
#include <vector>

namespace cohort {

/// One `key = value` of a TOML file; a scalar has one text.
struct FileEntry {
  enum class Kind { kString, kInteger, kFloat, kBool, kList, kOther };
  std::string key;
  Kind kind = Kind::kOther;
  std::vector<std::string> texts;
  int line = 0;
};

/// Reads the top-level keys of a TOML file.
///   throws  Error{kNotFound} if it cannot be read, Error{kInvalidRequest} with the place of a
///           syntax error or of a list that holds anything but strings
std::vector<FileEntry> read_settings_file(const std::string& path);

}  // namespace cohort
