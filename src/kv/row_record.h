#pragma once

#include <optional>

#include "base/sha256.h"
#include "kv/cache_kinds.h"
#include "kv/row_cache.h"

namespace cohort::kv {

// A row record is all layer caches of a row as one string of bytes, little-endian:
//   0     "COHORTKV"
//   8     u32: the format's version
//   12    u32: length of the header, such that 16 + length is a multiple of 64
//   16    the header: JSON, then spaces
//         {"about":   what the writer wants to know later,
//          "caches":  [a header per layer, see SavedCache],
//          "tensors": [{"name", "dtype", "shape", "offset", "bytes"}]}
//   ...   the tensors in that order, each filled with zeros to a multiple of 64; their offsets
//         count from the end of the header
//   end   the SHA-256 of everything before, as 64 hex digits

/// Writes a row record. Refers to the row, which must neither change nor die meanwhile. A
/// clone may be read on another thread; it dies on the engine's.
class RowWriter {
 public:
  ///   throws  Error{kUnsupported} if a cache is of no kind that can be saved
  RowWriter(const RowCache& row, CacheForm form, const boost::json::object& about = {});

  /// How long the record is.
  size_t bytes() const { return bytes_; }
  /// Hands out the record piece by piece; holds no more than a block of it at a time.
  void write(const Sink& sink) const;

 private:
  std::vector<SavedCache> caches_;
  std::string head_;  // all before the tensors
  size_t bytes_ = 0;
};

/// All of a record before its tensors: free of contradictions, but not held against the checksum.
///   thread  any; restore on the engine's
class RowHead {
 public:
  ///   throws  Error{kInvalidRequest} naming what is wrong, as all of this class do
  RowHead(Bytes head, size_t record_bytes);
  /// How long the head of a record is.
  static size_t bytes(Bytes first_16, size_t record_bytes);
  static constexpr size_t kPrefixBytes = 16;

  const boost::json::object& about() const { return about_; }
  /// Tokens of the row.
  int64_t offset() const { return offset_; }
  /// Makes of an empty row one that fill can take; kOverloaded without memory.
  void restore(RowCache& row) const;
  /// Reads all tensors into a row that was restored as restore would. What it throws also names the
  /// layer and the field in which the row would not have been saved like this.
  void fill(RowCache& row, const Source& source) const;

 private:
  void read_tensors(const boost::json::value& list, size_t data_bytes);
  void read_caches(const boost::json::value& list);
  std::vector<LoadedCache> caches_for(RowCache& row) const;

  boost::json::object about_;
  std::vector<boost::json::object> caches_;
  std::vector<TensorSpec> tensors_;
  int64_t offset_ = 0;
};

/// A row record in memory, which must outlive it.
///   thread  any; restore on the engine's
class RowRecord {
 public:
  /// Reads all of `bytes` once, for the checksum.
  ///   throws  Error{kInvalidRequest} naming what is wrong
  explicit RowRecord(Bytes bytes);

  const boost::json::object& about() const { return head_->about(); }
  int64_t offset() const { return head_->offset(); }
  /// A new row with what the record holds.
  ///   throws  Error{kInvalidRequest} if the row would not have been saved like this, naming the
  ///           layer and the field; kOverloaded without memory
  RowCache restore(KvMemory& memory, const RowPrecision& precision) const;

 private:
  std::optional<RowHead> head_;
  Bytes tensors_;
};

/// A row record that is read piece by piece, each byte once: straight into the row, which is worth
/// something only if the checksum at the end is right.
///   thread   any; the row must have been restored on the engine's and belong to this one
///   throws   Error{kInvalidRequest} naming what is wrong, and what the source throws
class RowReader {
 public:
  /// Reads the head.
  ///   bytes  of the record; the source has them all
  RowReader(size_t bytes, Source source);
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  const RowHead& head() const { return *head_; }
  /// Reads the rest into a row. Call once, it or verify.
  void fill(RowCache& row);
  /// Reads the rest for the checksum.
  void verify();

 private:
  void take(std::span<std::byte> bytes);
  void check_digest();

  Source source_;
  Sha256 sha256_;
  std::optional<RowHead> head_;
  size_t tensor_bytes_ = 0;
};

}  // namespace cohort::kv
