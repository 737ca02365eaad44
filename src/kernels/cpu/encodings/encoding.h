#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/kv_block.h"
#include "kernels/cpu/packed_matrix.h"

namespace cohort::kernels::cpu {

static_assert(kSharedSlots == kGroup && kBlockTokens % kGroup == 0);

/// One kind of encoding; `kv_block.cpp` holds the table of them. `head` is a kv head of a block.
struct EncodingKind {
  std::string (*name)(const KvEncoding& encoding);
  std::string (*refusal)(const KvEncoding& encoding, int head_dim);
  void (*store)(const KvGeometry& geometry, std::byte* head, int slot, const float* key,
                const float* value);
  void (*load)(const KvGeometry& geometry, const std::byte* head, int slot, float* key,
               float* value);
  /// Makes an output of attention out of a sum of what is stored for values; null = it is one.
  void (*finish)(int head_dim, float* out);
};
extern const EncodingKind kDenseEncoding, kAffineEncoding, kTurboEncoding;

/// The keys of the sixteen tokens that `slot` belongs to: of dense ones those of a channel, of
/// codes the vectors of the 32 channels that it belongs to.
template <class Byte>
Byte* dense_keys(const KvGeometry& g, Byte* head, int slot, int channel) {
  const ptrdiff_t at = static_cast<ptrdiff_t>(slot / 16) * g.head_dim + channel;
  return head + at * 2 * g.encoding.key_bits;
}
template <class Byte>
Byte* key_vectors(const KvGeometry& g, Byte* head, int slot, int channel) {
  const int at = channel / kGroup * (kBlockTokens / 16) + slot / 16;
  return head + at * code_vector_bytes(g.encoding.key_bits);
}
/// The values of a dense token, and the vectors of the sixteen channels and 32 tokens of a coded
/// one.
template <class Byte>
Byte* value_row(const KvGeometry& g, Byte* head, int slot) {
  return head + g.values_at() + slot * g.value_row_bytes();
}
template <class Byte>
Byte* value_vectors(const KvGeometry& g, Byte* head, int slot, int channel) {
  const int at = channel / 16 * (kBlockTokens / kGroup) + slot / kGroup;
  return head + g.values_at() + at * code_vector_bytes(g.encoding.value_bits);
}
/// Where the 16 bits of a scale are.
template <class Byte>
Byte* scale_at(const KvGeometry& g, Byte* head, KvScales array, int group, int slot) {
  return head + g.scales_at(array) + (static_cast<ptrdiff_t>(group) * kBlockTokens + slot) * 2;
}
inline void put_scale(std::byte* at, uint16_t bits) {
  std::memcpy(at, &bits, 2);
}
inline uint16_t get_scale(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return bits;
}

/// Calls put(channel, bits, code) for the codes of `count` channels. Bytes, the most frequent ones,
/// are so many bits at compile time, and then only stored.
template <class Put>
void put_codes(int bits, int channel, const uint8_t* codes, int count, Put put) {
  const auto put_all = [&](auto width) {
    for (int i = 0; i < count; ++i) put(channel + i, width, codes[i]);
  };
  bits == 8 ? put_all(std::integral_constant<int, 8>{}) : put_all(bits);
}
inline void put_key_codes(const KvGeometry& g, std::byte* head, int slot, int channel,
                          const uint8_t* codes, int count) {
  put_codes(g.encoding.key_bits, channel, codes, count, [&](int d, auto bits, uint8_t code) {
    put_code(key_vectors(g, head, slot, d), bits, slot % 16, d % kGroup, code);
  });
}
inline uint32_t key_code(const KvGeometry& g, const std::byte* head, int slot, int channel) {
  return get_code(key_vectors(g, head, slot, channel), g.encoding.key_bits, slot % 16,
                  channel % kGroup);
}
inline void put_value_codes(const KvGeometry& g, std::byte* head, int slot, int channel,
                            const uint8_t* codes, int count) {
  put_codes(g.encoding.value_bits, channel, codes, count, [&](int d, auto bits, uint8_t code) {
    put_code(value_vectors(g, head, slot, d), bits, d % 16, slot % kGroup, code);
  });
}
inline uint32_t value_code(const KvGeometry& g, const std::byte* head, int slot, int channel) {
  return get_code(value_vectors(g, head, slot, channel), g.encoding.value_bits, channel % 16,
                  slot % kGroup);
}

/// Nearest whole number, ties to even, for |x| < 2^22; the compiler can do several at once.
inline float round_small(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return (x + kMagic) - kMagic;
}

}  // namespace cohort::kernels::cpu
