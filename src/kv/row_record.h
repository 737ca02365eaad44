#pragma once

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

/// A row record in memory or in a mapped file, which must outlive it.
///   thread  any; restore on the engine's
class RowRecord {
 public:
  /// Reads all of `bytes` once, for the checksum.
  ///   throws  Error{kInvalidRequest} naming what is wrong
  explicit RowRecord(Bytes bytes);

  const boost::json::object& about() const { return about_; }
  /// Tokens of the row.
  int64_t offset() const { return offset_; }
  /// A new row with what the record holds.
  ///   throws  Error{kInvalidRequest} if the row would not have been saved like this, naming the
  ///           layer and the field; kOverloaded without memory
  RowCache restore(KvMemory& memory, const RowPrecision& precision) const;

 private:
  void read_tensors(const boost::json::value& list, Bytes data);
  void read_caches(const boost::json::value& list);

  boost::json::object about_;
  std::vector<boost::json::object> caches_;
  std::vector<ReadTensor> tensors_;
  int64_t offset_ = 0;
};

}  // namespace cohort::kv
