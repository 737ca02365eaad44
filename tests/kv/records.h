#pragma once

#include <cstring>

#include "base/sha256.h"
#include "kv/row_record.h"

namespace cohort::kv::test {

using Record = std::vector<std::byte>;

inline Record record_of(const RowCache& row, CacheForm form,
                        const boost::json::object& about = {}) {
  Record record;
  RowWriter(row, form, about).write([&](Bytes piece) {
    record.insert(record.end(), piece.begin(), piece.end());
  });
  return record;
}

/// Makes the checksum at the end right again.
inline void repair(Record& record) {
  constexpr size_t kDigest = 64;
  if (record.size() < kDigest) return;
  Sha256 sha256;
  sha256.update(Bytes(record).first(record.size() - kDigest));
  std::memcpy(record.data() + record.size() - kDigest, sha256.hex().data(), kDigest);
}

/// The JSON header of a record.
inline boost::json::object header_of(const Record& record) {
  uint32_t length;
  std::memcpy(&length, record.data() + 12, sizeof length);
  const auto* text = reinterpret_cast<const char*>(record.data()) + 16;
  return boost::json::parse(std::string_view(text, length)).as_object();
}

/// The record with another header and a right checksum.
inline Record with_header(const Record& record, const boost::json::object& header) {
  uint32_t length;
  std::memcpy(&length, record.data() + 12, sizeof length);
  std::string text = boost::json::serialize(header);
  text.resize((text.size() + 16 + 63) / 64 * 64 - 16, ' ');
  Record made(record.begin(), record.begin() + 16);
  const auto fresh = static_cast<uint32_t>(text.size());
  std::memcpy(made.data() + 12, &fresh, sizeof fresh);
  const auto bytes = std::as_bytes(std::span(text));
  made.insert(made.end(), bytes.begin(), bytes.end());
  made.insert(made.end(), record.begin() + 16 + length, record.end());
  repair(made);
  return made;
}

}  // namespace cohort::kv::test
