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

/// A saved cache, held against the one that is to take it, which must outlive this.
///   thread  any
class LoadedCache {
 public:
  ///   cache    of which only what it is matters: the signature, not the state
  ///   tensors  of the whole file: the header says which of them are the cache's
  ///   what     named in errors
  ///   throws   Error{kInvalidRequest} unless header and tensors are what saving this cache gives
  ///            at that offset, naming the field
  LoadedCache(const boost::json::object& header, std::span<const TensorSpec> tensors,
              LayerCache& cache, std::string_view what);

  int64_t offset() const { return state_.offset; }
  int64_t minimum_reusable_offset() const;
  const std::vector<TensorSpec>& tensors() const { return layout_.tensors; }
  /// Fills the cache, which must have been restored at that offset, with a tensor.
  void read(size_t tensor, const Source& source) const;

 private:
  LayerCache& cache_;
  CacheState state_;
  const CacheCodec* codec_;
  CacheLayout layout_;
};

}  // namespace cohort::kv
