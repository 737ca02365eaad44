#pragma once

#include <boost/json.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "kv/attention_cache.h"

namespace cohort::kv {

/// How the elements of a saved tensor are stored, little-endian.
enum class SavedType : uint8_t { kF32, kBF16, kF16, kU32, kU8, kI8 };
struct SavedTypeInfo {
  SavedType type;
  std::string_view name;
  size_t bytes;
};
inline constexpr SavedTypeInfo kSavedTypes[] = {
    {SavedType::kF32, "F32", 4}, {SavedType::kBF16, "BF16", 2}, {SavedType::kF16, "F16", 2},
    {SavedType::kU32, "U32", 4}, {SavedType::kU8, "U8", 1},     {SavedType::kI8, "I8", 1},
};
constexpr const SavedTypeInfo& info(SavedType type) {
  return kSavedTypes[static_cast<size_t>(type)];
}

/// A tensor of a saved cache, without its elements. Row-major.
struct TensorSpec {
  std::string name;
  SavedType type = SavedType::kU8;
  std::vector<int64_t> shape;

  size_t bytes() const {
    size_t count = info(type).bytes;
    for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
    return count;
  }
  bool operator==(const TensorSpec&) const = default;
};
/// For errors: "'keys' BF16 [2, 100, 64]".
std::string words(const TensorSpec& tensor);

using Bytes = std::span<const std::byte>;
/// Takes what is written, piece by piece. A piece lives until the call returns.
using Sink = std::function<void(Bytes)>;
/// Fills what it is given with the bytes that come next.
using Source = std::function<void(std::span<std::byte>)>;

/// What the form of a saved cache depends on, beside its signature.
struct CacheState {
  int64_t offset = 0;
  bool converted = false;
};

/// A cache as it is saved: the fields of its header and its tensors.
struct CacheLayout {
  boost::json::object header;
  std::vector<TensorSpec> tensors;
};

/// How caches of one family are saved. The layout follows from a cache's signature and a state, so
/// a reader knows it before it touches the cache.
class CacheCodec {
 public:
  /// Adds the codec's own fields and tensors of a cache like this one in that state.
  virtual void describe(const LayerCache& cache, CacheState state, CacheLayout& layout) const = 0;
  /// Writes the bytes of tensor `index` of the layout.
  virtual void write(const LayerCache& cache, size_t index, const Sink& sink) const = 0;
  /// Fills a restored cache with tensor `index` of the layout, from its first byte to its last.
  ///   thread  any
  virtual void read(LayerCache& cache, size_t index, const Source& source) const = 0;

 protected:
  ~CacheCodec() = default;
};

/// One file of this folder each.
const CacheCodec& dense_codec();
const CacheCodec& affine_codec();
const CacheCodec& turboquant_codec();
const CacheCodec& paged_codec();
const CacheCodec& recurrent_codec();

/// Calls visit(block, its tokens below the offset) for each block that a cache like this one holds
/// when it has `offset` tokens.
template <class Visit>
void for_each_held(const AttentionCache& cache, int64_t offset, Visit visit) {
  using kernels::cpu::kBlockTokens;
  for (int64_t begin = 0; begin < offset; begin += kBlockTokens) {
    const auto block = static_cast<size_t>(begin / kBlockTokens);
    if (!cache.holds(block, offset)) continue;
    visit(block, static_cast<int>(std::min<int64_t>(kBlockTokens, offset - begin)));
  }
}

/// The fields that all forms of an attention cache share: its window (from "firstPosition" on,
/// every token is held; beside it, blocks below "keep"), its change of precision and its encoding.
void describe_attention(const AttentionCache& cache, CacheState state, boost::json::object& header);

}  // namespace cohort::kv
