#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace cohort::kernels::cpu {

constexpr int kBlockTokens = 64;
constexpr int kSharedSlots = 32;   // tokens of a block whose values' codes share bytes
constexpr int kMaxHeadDim = 1024;  // attention keeps heads on the stack

/// How many blocks hold the positions below `tokens`.
constexpr int64_t blocks_for(int64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

enum class KvKind : uint8_t { kDense, kAffine, kTurbo };

/// How keys and values are stored. Codes of less than 16 bits have a scale (and an offset: a zero
/// or a bias) per `group` channels of one token and head.
struct KvEncoding {
  KvKind kind = KvKind::kDense;
  int key_bits = 16;  // of an element; dense: 16 is bf16, 32 is f32
  int value_bits = 16;
  int group = 0;  // 0 = dense
  bool operator==(const KvEncoding&) const = default;
};
constexpr KvEncoding dense_kv(bool bf16) {
  return {KvKind::kDense, bf16 ? 16 : 32, bf16 ? 16 : 32, 0};
}
constexpr KvEncoding affine_kv(int bits, int group) {
  return {KvKind::kAffine, bits, bits, group};
}
constexpr KvEncoding turbo_kv(int key_bits, int value_bits) {
  return {KvKind::kTurbo, key_bits, value_bits, 32};
}

/// Channels of a value row, padding included.
constexpr int padded(int head_dim) {
  return (head_dim + 15) / 16 * 16;
}

/// What a block holds: K and V of 64 tokens of one layer and row. For each kv head, one after the
/// other:
///   keys    a lane of a kernel is a token
///           dense       [4 tiles][head_dim][16 tokens]
///           codes       [head_dim / 32][4 tiles] of code vectors (code_vectors.h)
///   values  a lane is a channel
///           dense       [64 tokens][head_dim], padded to 16 channels
///           codes       [head_dim / 16][2 halves of the tokens] of code vectors
///   key_scales, key_offsets, value_scales, value_offsets
///           [head_dim / group][64 tokens] of 16 bits each; turboquant has no value_offsets
struct KvGeometry {
  int kv_heads;
  int head_dim;
  KvEncoding encoding;

  bool coded() const { return encoding.kind != KvKind::kDense; }
  int groups() const { return coded() ? head_dim / encoding.group : 0; }
  int value_stride() const { return padded(head_dim); }
  size_t value_row_bytes() const {
    return static_cast<size_t>(value_stride()) * encoding.value_bits / 8;
  }
  size_t key_bytes() const {
    return static_cast<size_t>(kBlockTokens) * head_dim * encoding.key_bits / 8;
  }
  size_t value_bytes() const { return kBlockTokens * value_row_bytes(); }
  /// Of one of the arrays of scales and zeros.
  size_t scale_bytes() const { return static_cast<size_t>(groups()) * kBlockTokens * 2; }
  int scale_arrays() const { return encoding.kind == KvKind::kAffine ? 4 : coded() ? 3 : 0; }

  size_t values_at() const { return key_bytes(); }
  size_t scales_at(int array) const { return key_bytes() + value_bytes() + array * scale_bytes(); }
  size_t head_bytes() const { return scales_at(scale_arrays()); }
  size_t block_bytes() const { return kv_heads * head_bytes(); }
  size_t bytes_per_token() const { return block_bytes() / kBlockTokens; }
};

/// Copies a block to another of its size, where blocks are not memory of this process.
using BlockCopy = std::function<void(size_t block_bytes, uint32_t from, uint32_t to)>;

/// The arrays of scales, in their order in a block.
enum KvScales { kKeyScales, kKeyOffsets, kValueScales, kValueOffsets };

/// "plain:bf16", "quant:8:64", "turboquant:8:3".
std::string words(const KvEncoding& encoding);
/// Why `encoding` cannot hold heads of this dimension, or "".
std::string refusal(const KvEncoding& encoding, int head_dim);

/// Encodes one token of one head into its slot. Writing a slot again replaces it.
///   key, value  [head_dim]
///   thread      one at a time for each kSharedSlots slots of a block
void store_kv(const KvGeometry& geometry, std::byte* block, int kv_head, int slot, const float* key,
              const float* value);
/// Makes an output of attention, in place, out of a weighted sum of what is stored for values.
///   out  [head_dim]
void finish_output(const KvEncoding& encoding, int head_dim, float* out);
/// What attention reads of that slot, the values of turboquant rotated back. Not fast.
void load_kv(const KvGeometry& geometry, const std::byte* block, int kv_head, int slot, float* key,
             float* value);

}  // namespace cohort::kernels::cpu
