#pragma once

#include <span>

#include "kernels/cpu/cpu.h"

namespace cohort::kernels::cpu {

/// The tokens of one row in a pack, and the row's blocks.
struct AttentionRow {
  int first_token;  // in the pack
  int tokens;
  int64_t first_position;  // absolute position of the first token
  /// Block i holds positions [64 i, 64 i + 64); those before a window may be null.
  std::byte* const* blocks;
};

/// One attention layer: [per-head norm] -> rope -> append to the blocks -> attend to what is
/// stored. Pointers are borrowed and outlive the step.
struct AttentionStep {
  KvGeometry geometry;
  int heads;                      // query heads, a multiple of geometry.kv_heads
  float scale;                    // of q . k
  int64_t window = 0;             // a query sees the last `window` keys, itself included; 0 = all
  const float* q_norm = nullptr;  // [head_dim]
  const float* k_norm = nullptr;
  float norm_eps = 0;
  int rope_dims = 0;               // channels rotated, half-split pairs; 0 = none
  const float* cos_sin = nullptr;  // [tokens][cos rope_dims / 2, sin rope_dims / 2]

  int qkv_columns() const { return (heads + 2 * geometry.kv_heads) * geometry.head_dim; }
  int outputs() const { return heads * geometry.head_dim; }
};

/// Runs the step.
///   qkv       [tokens, (heads + 2 kv_heads) * head_dim]: queries, keys, values
///   out       [tokens, heads * head_dim]
///   invariant softmax runs over the 64-key grid of absolute positions, 16 blocks a segment, and
///             segments merge in order: chunking, neighbours, threads and kernels change no bit
///   thread    see Cpu
///   source    Milakov and Gimelshein, "Online normalizer calculation for softmax"
void attention(Cpu& cpu, const AttentionStep& step, std::span<const AttentionRow> rows,
               const float* qkv, float* out);

}  // namespace cohort::kernels::cpu
