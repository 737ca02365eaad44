#pragma once

#include <optional>
#include <utility>

#include "kv/cache_kinds.h"
#include "kv/record.h"
#include "kv/row_cache.h"

namespace cohort::kv {

// A row record is all layer caches of a row as one record, see record.h. Its header has beside
// "about" and "tensors":
//   "caches": [a header per layer, see SavedCache], whose tensors are all those of the record

/// Writes a row record. Refers to the row, which must neither change nor die meanwhile. A
/// clone may be read on another thread; it dies on the engine's.
class RowWriter {
 public:
  ///   throws  Error{kUnsupported} if a cache is of no kind that can be saved
  RowWriter(const RowCache& row, CacheForm form, const boost::json::object& about = {});

  /// How long the record is.
  size_t bytes() const { return record_->bytes(); }
  /// Hands out the record piece by piece; holds no more than a block of it at a time.
  void write(const Sink& sink) const;

 private:
  std::vector<SavedCache> caches_;
  std::optional<RecordWriter> record_;
};

/// The head of a row record.
///   thread  any; restore on the engine's
class RowHead : public RecordHead {
 public:
  ///   throws  Error{kInvalidRequest} naming what is wrong, as all of this class do
  explicit RowHead(const RecordHead& head);

  /// Tokens of the row.
  int64_t offset() const { return offset_; }
  /// Makes of an empty row one that fill can take; kOverloaded without memory.
  void restore(RowCache& row) const;
  /// Reads all of the record, of which this is the head, into a row that was restored as restore
  /// would. The row is worth something only if this returns. What it throws also names the layer
  /// and the field in which the row would not have been saved like this.
  ///   thread  any; the row must belong to this one
  void fill(RowCache& row, RecordReader& record) const;

 private:
  std::vector<LoadedCache> caches_for(RowCache& row) const;

  int64_t offset_ = 0;
};

/// A row record in memory, which must outlive it.
///   thread  any; restore on the engine's
class RowRecord {
 public:
  /// Reads all of `bytes` once, for the checksum.
  ///   throws  Error{kInvalidRequest} naming what is wrong
  explicit RowRecord(Bytes bytes);

  const boost::json::object& about() const { return head_.about(); }
  int64_t offset() const { return head_.offset(); }
  /// A new row with what the record holds.
  ///   throws  Error{kInvalidRequest} if the row would not have been saved like this, naming the
  ///           layer and the field; kOverloaded without memory
  RowCache restore(KvMemory& memory, const RowPrecision& precision) const;

 private:
  Bytes bytes_;
  RowHead head_;
};

}  // namespace cohort::kv
