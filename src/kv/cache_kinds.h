#pragma once

#include "kv/codecs/codec.h"

namespace cohort::kv {

/// In which form a cache is saved: as plain tensors that other programs can read, or with its
/// blocks as they are, which is faster. Caches without blocks have one form.
enum CacheForm : unsigned { kPortable = 1, kPaged = 2 };

/// A named kind of layer cache; `cache_kinds.cpp` holds the table of them.
struct CacheKind {
  std::string_view name;  // "kind" in headers
  unsigned forms;         // that it is the form of
  bool (*matches)(const LayerCache& cache);
  const CacheCodec& (*codec)();
  const CacheCodec& (*codec_before)();  // of a cache that is yet to be converted; else null
};

/// The table, for tests and listings.
std::span<const CacheKind> cache_kinds();

/// Finds the row of a cache.
///   throws  Error{kUnsupported} naming the cache's signature if there is none
const CacheKind& kind_of(const LayerCache& cache, CacheForm form);

/// A layer cache that is being saved. Refers to the cache, which must neither change nor die
/// meanwhile. A clone may be read on another thread; it dies on the engine's.
class SavedCache {
 public:
  SavedCache(const LayerCache& cache, CacheForm form);

  /// kind, signature, offset, minimumReusableOffset, the fields of the kind, and "tensors": the
  /// slots of the tensors in what they are saved in, from `first_slot` on.
  boost::json::object header(size_t first_slot) const;
  const std::vector<TensorSpec>& tensors() const { return layout_.tensors; }
  /// Writes the elements of a tensor.
  void write(size_t tensor, const Sink& sink) const;

 private:
  const LayerCache& cache_;
  const CacheCodec& codec_;
  CacheLayout layout_;
};

/// A tensor that was read.
struct ReadTensor {
  TensorSpec spec;
  Bytes bytes;  // as long as the spec says; at any address
};

/// Fills an empty cache with what a header and its tensors hold.
///   tensors  of the whole file: the header says which of them are the cache's
///   what     named in errors
///   throws   Error{kInvalidRequest} unless header and tensors are what saving this cache gives at
///            that offset, naming the field; kOverloaded without memory. Then the cache is only
///            good for destruction.
void restore_cache(const boost::json::object& header, std::span<const ReadTensor> tensors,
                   LayerCache& cache, std::string_view what);

}  // namespace cohort::kv
