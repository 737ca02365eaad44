#include "store/object_cache.h"

#include <utility>

#include "base/error.h"

namespace cohort::store {

size_t bytes_of(const Object& object) {
  constexpr size_t kObjectBytes = 512;   // the object and its entry
  constexpr size_t kTensorBytes = 256;   // a tensor's name and shape
  constexpr size_t kMetadataBytes = 24;  // a value's, for each character that it has at least
  size_t bytes = kObjectBytes + object.schema.size();
  if (!object.metadata.empty()) {
    bytes += boost::json::serialize(object.metadata).size() * kMetadataBytes;
  }
  for (const ObjectTensor& tensor : object.tensors) {
    bytes += kTensorBytes + tensor.spec.name.size() + tensor.bytes.size();
  }
  return bytes;
}

ObjectLease ObjectCache::take(const std::string& key) {
  retention_.begin_use();
  const auto found = ids_.find(key);
  if (found == ids_.end()) {
    ++misses_;
    return nullptr;
  }
  ++hits_;
  retention_.touch(found->second);
  return entries_.at(found->second).object;
}

void ObjectCache::put(const std::string& key, ObjectLease object) {
  for (const ObjectTensor& tensor : object->tensors) {
    check(tensor.bytes.size() == tensor.spec.bytes(), "a tensor is as long as its shape says");
  }
  retention_.begin_use();
  if (const auto old = ids_.find(key); old != ids_.end()) remove(old->second);
  const size_t bytes = 2 * key.size() + bytes_of(*object);
  if (bytes > retention_.budget_bytes()) return;
  const EntryId id = retention_.add(*this);
  ids_[key] = id;
  entries_[id] = {key, std::move(object), bytes};
  bytes_ += bytes;
  retention_.make_room(id);
}

void ObjectCache::remove(EntryId id) {
  const auto place = entries_.find(id);
  bytes_ -= place->second.bytes;
  ids_.erase(place->second.key);
  entries_.erase(place);
  retention_.erase(id);
}

void ObjectCache::clear() noexcept {
  ids_.clear();
  entries_.clear();
  retention_.erase_all(*this);
  bytes_ = 0;
}

ObjectCacheStats ObjectCache::stats() const {
  return {entries_.size(), bytes_, hits_, misses_, evictions()};
}

void ObjectCache::check_integrity() const {
  size_t bytes = 0, used = 0;
  for (const auto& [id, entry] : entries_) {
    check(ids_.at(entry.key) == id, "an entry is found by its key");
    check(entry.bytes == 2 * entry.key.size() + bytes_of(*entry.object), "an object never changes");
    bytes += entry.bytes;
  }
  for (const auto& [id, use] : retention_.uses()) {
    if (use.owner != this) continue;
    check(entries_.contains(id), "what is used is there");
    ++used;
  }
  check(ids_.size() == entries_.size() && used == entries_.size(), "every entry has a place");
  check(bytes == bytes_, "the bytes of the entries add up");
}

}  // namespace cohort::store
