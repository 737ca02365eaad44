#pragma once

#include <boost/json.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kv/codecs/codec.h"
#include "store/retention.h"

namespace cohort::store {

struct ObjectTensor {
  kv::TensorSpec spec;
  std::vector<std::byte> bytes;  // as the spec says
  bool operator==(const ObjectTensor&) const = default;
};

/// What was made of an input and can be used again: what an encoder says of an image, say.
struct Object {
  std::string schema;  // what metadata and tensors mean; its readers hold it against their own
  /// UTF-8, nested less than 30 deep. Numbers that are not whole may come back from a file
  /// different in their last place: what must be exact belongs into a tensor.
  boost::json::object metadata;
  std::vector<ObjectTensor> tensors;
  bool operator==(const Object&) const = default;
};

/// Keeps an object in memory, whatever becomes of its entry; never null where one is handed in.
using ObjectLease = std::shared_ptr<const Object>;

struct ObjectCacheStats {
  size_t entries = 0;
  size_t bytes = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t evictions = 0;
};

/// Objects by key, which names all that decides them: the input, its encoder, the schema. They
/// share the budget of the prefixes and leave in one order with them. An object that has left while
/// somebody holds a lease is freed with the last lease, and no longer counted.
/// Where memory for its books is short, put throws, and clear() of all tenants must follow.
///   thread  engine; leases any
class ObjectCache : public Retention::Tenant {
 public:
  using Tenant::Tenant;

  /// The object of exactly that key, or null.
  ObjectLease take(const std::string& key);
  /// Keeps an object in place of the key's former one. What is larger than the budget is not kept,
  /// and a put drives out others only.
  void put(const std::string& key, ObjectLease object);
  void clear() noexcept;

  size_t bytes() const override { return bytes_; }
  ObjectCacheStats stats() const;
  /// Throws Error{kInternal} if the cache contradicts itself.
  void check_integrity() const;

 private:
  struct Entry {
    std::string key;
    ObjectLease object;
    size_t bytes = 0;
  };

  void remove(EntryId id) override;

  std::map<EntryId, Entry> entries_;
  std::map<std::string, EntryId> ids_;  // by key
  size_t bytes_ = 0;                    // of all entries
  uint64_t hits_ = 0, misses_ = 0;
};

/// What an object takes beside its key, rounded up.
size_t bytes_of(const Object& object);

}  // namespace cohort::store
