#pragma once

#include <span>

#include "kernels/cpu/cpu.h"

namespace cohort::kernels::cpu {

/// What attention may read of a layer cache.
struct KvView {
  KvEncoding encoding;
  /// Block i holds positions [64 i, 64 i + 64); those that no query sees may be null.
  std::byte* const* blocks;
  /// Their ids among the blocks of their size: what names them on a device.
  const uint32_t* ids = nullptr;
};

/// The tokens of one row in a pack, and the row's cache; rows of unlike encodings may share a pack.
struct AttentionRow {
  int first_token;  // in the pack
  int tokens;
  int64_t first_position;  // absolute position of the first token
  KvView kv;
};

/// One attention layer: [per-head norm] -> rope -> append to the blocks -> attend to what is
/// stored. Pointers are borrowed and outlive the step.
struct AttentionStep {
  int heads;  // query heads, a multiple of kv_heads
  int kv_heads;
  int head_dim;
  float scale;                    // of q . k
  int64_t window = 0;             // a query sees the last `window` keys, itself included; 0 = all
  int64_t keep = 0;               // beside the window, the keys of the blocks below this position
  const float* q_norm = nullptr;  // [head_dim]
  const float* k_norm = nullptr;
  float norm_eps = 0;
  int rope_dims = 0;               // channels rotated, half-split pairs; 0 = none
  const float* cos_sin = nullptr;  // [tokens][cos rope_dims / 2, sin rope_dims / 2]

  int qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
  int outputs() const { return heads * head_dim; }
  KvGeometry geometry(const KvEncoding& encoding) const { return {kv_heads, head_dim, encoding}; }
};

/// Runs the step.
///   qkv       [tokens, (heads + 2 kv_heads) * head_dim]: queries, keys, values
///   out       [tokens, heads * head_dim]
///   invariant softmax runs over the 64-key grid of absolute positions, 16 blocks a segment, and
///             segments merge in order: chunking, neighbours, threads and kernels change no bit
///             (of a NaN, only that it is one)
///   thread    see Cpu
///   source    Milakov and Gimelshein, "Online normalizer calculation for softmax"
void attention(Cpu& cpu, const AttentionStep& step, std::span<const AttentionRow> rows,
               const float* qkv, float* out);

/// The most scratch memory that attention() takes for `tokens` of one row that end at `context`:
/// the rotated queries and, while fewer tiles of four queries than keep the threads busy, a partial
/// output for each tile and segment of 1,024 keys. It hardly grows with the context.
///   outputs  heads x head_dim
size_t attention_scratch_bytes(int outputs, int64_t tokens, int64_t context, int threads);

}  // namespace cohort::kernels::cpu
