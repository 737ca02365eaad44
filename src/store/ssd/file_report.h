#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "store/ssd/cache_folder.h"

namespace cohort::store {

/// What is in a file of an SSD cache.
struct FileReport {
  std::string identity;
  bool object = false;   // of an object, not of a row
  int64_t tokens = 0;    // of the row
  std::string fault;     // why it is of no use; "" if it is sound
  bool damaged = false;  // for that reason: nobody will ever have use for it
};

/// Reads the head of a file, or all of it for its checksum.
///   returns  nullopt if it is gone or being removed
std::optional<FileReport> report_on(const CacheFolder& folder, const std::string& file, bool all);

}  // namespace cohort::store
