// TurboQuant caches: codes packed little-endian along head_dim (keys of 8 bits as signed bytes),
// and per group of 32 an f16 scale and zero of the keys and an f16 scale of the rotated values.
//   source  the arrays of vllm-metal's codec

#include "kv/codecs/planes.h"

namespace cohort::kv {
namespace {

using namespace kernels::cpu;  // NOLINT(google-build-using-namespace): names of one layout

// A block stores a signed code plus 128: the same byte with its highest bit turned over.
void turn_signs(int count, std::byte* codes) {
  for (int i = 0; i < count; ++i) codes[i] ^= std::byte{0x80};
}

void save_signed_keys(const KvGeometry& g, const std::byte* head, int slot, std::byte* row) {
  save_key_codes(g, head, slot, row);
  turn_signs(g.head_dim, row);
}

void load_signed_keys(const KvGeometry& g, std::byte* head, int slot, const std::byte* row) {
  std::byte codes[kMaxHeadDim];
  std::memcpy(codes, row, static_cast<size_t>(g.head_dim));
  turn_signs(g.head_dim, codes);
  load_key_codes(g, head, slot, codes);
}

std::vector<Plane> planes(const KvGeometry& g) {
  const int64_t key_bytes = int64_t{g.head_dim} * g.encoding.key_bits / 8;
  const int64_t value_bytes = int64_t{g.head_dim} * g.encoding.value_bits / 8;
  const Plane unsigned_keys{"kIdx", SavedType::kU8, key_bytes, save_key_codes, load_key_codes};
  const Plane signed_keys{"kIdx", SavedType::kI8, key_bytes, save_signed_keys, load_signed_keys};
  return {g.encoding.key_bits == 8 ? signed_keys : unsigned_keys,
          scales_plane<kKeyScales>("kScales", SavedType::kF16, g),
          scales_plane<kKeyOffsets>("kZeros", SavedType::kF16, g),
          {"vPacked", SavedType::kU8, value_bytes, save_value_codes, load_value_codes},
          scales_plane<kValueScales>("vScales", SavedType::kF16, g)};
}

}  // namespace

const CacheCodec& turboquant_codec() {
  static const PlaneCodec codec(planes);
  return codec;
}

}  // namespace cohort::kv
