// Affine caches: for keys and values each, codes packed little-endian in 32-bit words along
// head_dim, and a bf16 scale and bias per group.
//   source  the layout of MLX's mx.quantize, mode "affine"

#include "kv/codecs/planes.h"

namespace cohort::kv {
namespace {

using namespace kernels::cpu;  // NOLINT(google-build-using-namespace): names of one layout

std::vector<Plane> planes(const KvGeometry& g) {
  const int64_t words = int64_t{g.head_dim} * g.encoding.key_bits / 32;
  return {{"keys", SavedType::kU32, words, save_key_codes, load_key_codes},
          scales_plane<kKeyScales>("keyScales", SavedType::kBF16, g),
          scales_plane<kKeyOffsets>("keyBiases", SavedType::kBF16, g),
          {"values", SavedType::kU32, words, save_value_codes, load_value_codes},
          scales_plane<kValueScales>("valueScales", SavedType::kBF16, g),
          scales_plane<kValueOffsets>("valueBiases", SavedType::kBF16, g)};
}

}  // namespace

const CacheCodec& affine_codec() {
  static const PlaneCodec codec(planes);
  return codec;
}

}  // namespace cohort::kv
