#pragma once

#include <boost/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"

// Reading the files under tests/goldens.

namespace cohort::text {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorKind::kNotFound, "cannot read {}", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline boost::json::value read_json(const std::filesystem::path& path) {
  return boost::json::parse(read_file(path));
}

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(COHORT_GOLDENS) / name;
}

inline std::vector<int32_t> ids_of(const boost::json::value& list) {
  std::vector<int32_t> ids;
  for (const auto& id : list.as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
  return ids;
}

/// The member as text, "" if it is absent or null.
inline std::string text_of(const boost::json::value& object, const char* key) {
  const boost::json::value* member = object.as_object().if_contains(key);
  return member && member->is_string() ? std::string(member->as_string()) : std::string();
}

}  // namespace cohort::text
