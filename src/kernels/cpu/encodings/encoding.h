#pragma once

#include <bit>

#include "kernels/cpu/kv_block.h"
#include "kernels/cpu/packed_matrix.h"

namespace cohort::kernels::cpu {

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

/// The bit stream of sixteen tokens that `slot` belongs to, at one channel of the keys.
template <class Byte>
Byte* key_stream(const KvGeometry& g, Byte* head, int slot, int channel) {
  const ptrdiff_t streams = static_cast<ptrdiff_t>(slot / 16) * g.head_dim + channel;
  return head + streams * 2 * g.encoding.key_bits;
}
template <class Byte>
Byte* value_row(const KvGeometry& g, Byte* head, int slot) {
  return head + g.values_at() + slot * g.value_row_bytes();
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

inline void put_key_codes(const KvGeometry& g, std::byte* head, int slot, int channel,
                          const uint8_t* codes, int count) {
  const int bits = g.encoding.key_bits;
  for (int i = 0; i < count; ++i) {
    std::byte* stream = key_stream(g, head, slot, channel + i);
    if (bits == 8) {
      stream[slot % 16] = std::byte{codes[i]};
    } else {
      write_bits(stream, static_cast<size_t>(slot % 16) * bits, bits, codes[i]);
    }
  }
}
inline void put_value_codes(const KvGeometry& g, std::byte* head, int slot, int channel,
                            const uint8_t* codes, int count) {
  const int bits = g.encoding.value_bits;
  std::byte* row = value_row(g, head, slot);
  for (int i = 0; i < count; ++i) {
    if (bits == 8) {
      row[channel + i] = std::byte{codes[i]};
    } else {
      write_bits(row, static_cast<size_t>(channel + i) * bits, bits, codes[i]);
    }
  }
}
inline uint32_t key_code(const KvGeometry& g, const std::byte* head, int slot, int channel) {
  const int bits = g.encoding.key_bits;
  return read_bits(key_stream(g, head, slot, channel), static_cast<size_t>(slot % 16) * bits, bits);
}
inline uint32_t value_code(const KvGeometry& g, const std::byte* head, int slot, int channel) {
  const int bits = g.encoding.value_bits;
  return read_bits(value_row(g, head, slot), static_cast<size_t>(channel) * bits, bits);
}

/// Nearest whole number, ties to even, for |x| < 2^22; the compiler can do several at once.
inline float round_small(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return (x + kMagic) - kMagic;
}

}  // namespace cohort::kernels::cpu
