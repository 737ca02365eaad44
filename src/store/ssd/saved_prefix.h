#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

#include "kv/row_record.h"
#include "store/prefix_cache.h"

namespace cohort::store {

/// What a file of the SSD cache says of the row that it holds.
struct SavedPrefix {
  Namespace space;
  std::vector<int32_t> ids;             // all tokens of the row
  int64_t floor = 0;                    // the fewest of them that it can serve
  int64_t minimum_reusable_offset = 0;  // of the row: tells which layers have been converted

  bool operator==(const SavedPrefix&) const = default;
};

/// What a row is saved with: "identity" and "namespace", "ids" as 8 hex digits each, "floor" and
/// "minimumReusableOffset".
boost::json::object about_prefix(std::string_view identity, const SavedPrefix& prefix);

/// The prefix of a file whose head was read.
///   throws  Error{kUnsupported} if the file is of another identity, kInvalidRequest if it
///           contradicts itself
SavedPrefix prefix_of(const kv::RowHead& head, std::string_view identity);

/// The identity that a file was written for; "" if it says none.
std::string_view identity_of(const kv::RecordHead& head);

}  // namespace cohort::store
