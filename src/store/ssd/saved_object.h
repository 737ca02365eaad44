#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>

#include "kv/record.h"
#include "store/object_cache.h"

namespace cohort::store {

/// Writes an object as a record whose "about" has "identity", "object" (its key), "schema" and
/// "metadata". Refers to the object.
class ObjectWriter {
 public:
  ///   throws  Error{kUnsupported} if the metadata are too long
  ObjectWriter(std::string_view identity, std::string_view key, const Object& object);

  /// How long the record is.
  size_t bytes() const { return record_.bytes(); }
  /// Hands out the record piece by piece.
  void write(const kv::Sink& sink) const;

 private:
  const Object& object_;
  kv::RecordWriter record_;
};

/// Whether a record is an object's, and no row's.
bool holds_object(const kv::RecordHead& head);

/// The key of the object of a record whose head was read.
///   throws  Error{kUnsupported} if the file is of another identity, kInvalidRequest if it
///           contradicts itself
std::string key_of(const kv::RecordHead& head, std::string_view identity);

/// Reads the rest of an object's record. Takes memory for the tensors that the head speaks of, so
/// no more than the file is long.
///   thread  any
Object read_object(kv::RecordReader& record);

}  // namespace cohort::store
