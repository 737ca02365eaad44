// Dense caches: keys and values [kv_heads, tokens, head_dim], bf16 or f32.

#include "kv/codecs/planes.h"

namespace cohort::kv {
namespace {

using kernels::cpu::KvGeometry;

// In a block, the channels of a key lie sixteen elements apart.
template <size_t size>
void save_key(const KvGeometry& g, const std::byte* head, int slot, std::byte* row) {
  const std::byte* from = dense_keys(g, head, slot, 0) + slot % 16 * size;
  for (int d = 0; d < g.head_dim; ++d) std::memcpy(row + d * size, from + d * 16 * size, size);
}

template <size_t size>
void load_key(const KvGeometry& g, std::byte* head, int slot, const std::byte* row) {
  std::byte* to = dense_keys(g, head, slot, 0) + slot % 16 * size;
  for (int d = 0; d < g.head_dim; ++d) std::memcpy(to + d * 16 * size, row + d * size, size);
}

template <size_t size>
void save_value(const KvGeometry& g, const std::byte* head, int slot, std::byte* row) {
  std::memcpy(row, value_row(g, head, slot), g.head_dim * size);
}

template <size_t size>
void load_value(const KvGeometry& g, std::byte* head, int slot, const std::byte* row) {
  std::memcpy(value_row(g, head, slot), row, g.head_dim * size);
}

std::vector<Plane> planes(const KvGeometry& g) {
  if (g.encoding.key_bits == 16) {
    return {{"keys", SavedType::kBF16, g.head_dim, save_key<2>, load_key<2>},
            {"values", SavedType::kBF16, g.head_dim, save_value<2>, load_value<2>}};
  }
  return {{"keys", SavedType::kF32, g.head_dim, save_key<4>, load_key<4>},
          {"values", SavedType::kF32, g.head_dim, save_value<4>, load_value<4>}};
}

}  // namespace

const CacheCodec& dense_codec() {
  static const PlaneCodec codec(planes);
  return codec;
}

}  // namespace cohort::kv
