#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"
#include "kv/codecs/codec.h"

namespace cohort::kv {

// A record is tensors and what is said of them as one string of bytes, little-endian:
//   0     "COHORTKV"
//   8     u32: the format's version
//   12    u32: length of the header, such that 16 + length is a multiple of 64
//   16    the header: JSON, then spaces
//         {"about":   what the writer wants to know later,
//          fields of what is recorded,
//          "tensors": [{"name", "dtype", "shape", "offset", "bytes"}]}
//   ...   the tensors in that order, each filled with zeros to a multiple of 64; their offsets
//         count from the end of the header
//   end   the SHA-256 of everything before, as 64 hex digits

/// Writes a record.
class RecordWriter {
 public:
  /// Writes all elements of a tensor, by its place in the list.
  using Elements = std::function<void(size_t tensor, const Sink& sink)>;

  ///   header  all of it but "tensors"
  RecordWriter(boost::json::object header, std::vector<TensorSpec> tensors);

  /// How long the record is.
  size_t bytes() const { return bytes_; }
  /// Hands out the record piece by piece, the tensors in pieces as they are written.
  void write(const Elements& elements, const Sink& sink) const;

 private:
  std::vector<TensorSpec> tensors_;
  std::string head_;  // all before the tensors
  size_t bytes_ = 0;
};

/// All of a record before its tensors: free of contradictions, but not held against the checksum.
///   thread  any
class RecordHead {
 public:
  ///   record_bytes  which the tensors fill to the end
  ///   throws        Error{kInvalidRequest} naming what is wrong, as all of this class do
  RecordHead(Bytes head, size_t record_bytes);
  /// How long the head of a record is.
  static size_t bytes(Bytes first_16, size_t record_bytes);
  static constexpr size_t kPrefixBytes = 16;

  const boost::json::object& about() const { return about_; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }

 protected:
  template <class... Args>
  [[noreturn]] static void refuse(fmt::format_string<Args...> format, Args&&... args) {
    fail(ErrorKind::kInvalidRequest, "KV record: {}",
         fmt::format(format, std::forward<Args>(args)...));
  }
  static const boost::json::value& field(const boost::json::object& object, std::string_view key,
                                         boost::json::kind kind);
  static size_t natural(const boost::json::value& value);

  boost::json::object header_;  // but "about" and "tensors"

 private:
  static TensorSpec read_spec(const boost::json::object& entry);
  void read_tensors(const boost::json::value& list, size_t data_bytes);

  boost::json::object about_;
  std::vector<TensorSpec> tensors_;
};

/// A record that is read piece by piece, each byte once. What was read is worth something only if
/// the checksum at the end is right.
///   thread   any
///   throws   Error{kInvalidRequest} naming what is wrong, and what the source throws
class RecordReader {
 public:
  /// Fills all elements of a tensor, by its place in the list.
  using Elements = std::function<void(size_t tensor, const Source& source)>;

  /// Reads the head.
  ///   bytes  of the record; the source has them all
  RecordReader(size_t bytes, Source source);
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  const RecordHead& head() const { return *head_; }
  /// Reads the rest. Call once, it or verify.
  void read(const Elements& elements);
  /// Reads the rest for the checksum.
  void verify();

 private:
  void take(std::span<std::byte> bytes);

  Source source_;
  Sha256 sha256_;
  std::optional<RecordHead> head_;
};

}  // namespace cohort::kv
