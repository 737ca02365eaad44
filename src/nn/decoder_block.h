#pragma once

#include <mlx/mlx.h>

#include <vector>

#include "kernels/ops.h"

namespace cohort::nn {

namespace mx = mlx::core;

/// One transformer decoder layer in five nodes: norm + qkv, attention, out + residual,
/// norm + gate and up + activation, down + residual.
struct DecoderBlock {
  kernels::cpu::MatmulStep qkv;  // norm, then query, key and value projections
  kernels::cpu::AttentionStep attention;
  kernels::cpu::MatmulStep out;      // kResidual
  kernels::cpu::MatmulStep gate_up;  // norm, kGated
  kernels::cpu::MatmulStep down;     // kResidual
  size_t rope = 0;                   // which of the model's rotary tables
};

/// x [tokens, hidden] -> [tokens, hidden]; appends the tokens' K and V to `rows` when evaluated.
mx::array forward(kernels::Ops& ops, const DecoderBlock& block, const mx::array& x,
                  std::vector<kernels::cpu::AttentionRow> rows, const mx::array& cos_sin);

}  // namespace cohort::nn
