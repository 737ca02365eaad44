#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/row_record.h"
#include "store/prefix_cache.h"

namespace cohort::store {

/// An answer that was not finished when its row was saved: what a retry of its request goes on
/// with. Digests only, no text.
struct Generation {
  std::string key;          // who asked, and under which id
  std::string fingerprint;  // all that decides the answer, but a seed that nobody chose
  uint64_t seed = 0;
  std::vector<int32_t> answer = {};  // its tokens so far; the last one is not in the row yet

  bool operator==(const Generation&) const = default;
};

/// What a file of the SSD cache says of the row that it holds.
struct SavedPrefix {
  Namespace space;
  std::vector<int32_t> ids;                   // all tokens of the row
  int64_t floor = 0;                          // the fewest of them that it can serve
  int64_t minimum_reusable_offset = 0;        // of the row: tells which layers have been converted
  std::optional<Generation> generation = {};  // its answer begins with a token of `ids`

  bool operator==(const SavedPrefix&) const = default;
};

/// What a prefix says of its generation, with a checksum that holds the ids of the answer, too: the
/// answer is given out before the file's own checksum has been looked at.
boost::json::object about_generation(const SavedPrefix& prefix);

/// The generation of a prefix of these ids.
///   returns  nullopt if that is not what about_generation wrote
std::optional<Generation> generation_of(const boost::json::value& about,
                                        std::span<const int32_t> ids);

/// What a row is saved with: "identity" and "namespace", "ids" as 8 hex digits each, "floor",
/// "minimumReusableOffset" and, if it has one, "generation".
boost::json::object about_prefix(std::string_view identity, const SavedPrefix& prefix);

/// The prefix of a file whose head was read.
///   throws  Error{kUnsupported} if the file is of another identity, kInvalidRequest if it
///           contradicts itself
SavedPrefix prefix_of(const kv::RowHead& head, std::string_view identity);

/// The identity that a file was written for; "" if it says none.
std::string_view identity_of(const kv::RecordHead& head);

}  // namespace cohort::store
