#pragma once

#include "kernels/cpu/attention.h"
#include "kernels/cpu/matmul.h"

namespace cohort::kernels::cpu {

/// One transformer decoder layer in five steps.
struct DecoderLayer {
  MatmulStep qkv;  // norm, then query, key and value projections
  AttentionStep attention;
  MatmulStep out;      // kResidual
  MatmulStep gate_up;  // norm, kGated
  MatmulStep down;     // kResidual
};

/// Runs the steps and appends the tokens' K and V to the rows' blocks.
///   cos_sin    [tokens, attention.rope_dims]
///   x, out     [tokens, hidden], apart from each other
///   invariant, thread  see matmul.h, attention.h
void decoder_layer(Cpu& cpu, const DecoderLayer& layer, std::span<const AttentionRow> rows,
                   const float* cos_sin, const float* x, int tokens, float* out);

}  // namespace cohort::kernels::cpu
