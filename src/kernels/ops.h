#pragma once

#include <mlx/mlx.h>

#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/matmul.h"

namespace cohort::kernels {

namespace mx = mlx::core;

// The nodes of a forward. Each is one MLX node on the CPU; its `_reference` computes the same with
// plain MLX ops from unpacked weights (test oracle, and the path of devices without a kernel).
// All arrays are f32. Steps and Cpu are borrowed and outlive the evaluation.

/// See cpu/matmul.h.
///   x [tokens, cols], residual [tokens, outputs] for Epilogue::kResidual   ->   [tokens, outputs]
mx::array matmul(cpu::Cpu& cpu, const cpu::MatmulStep& step, const mx::array& x,
                 const std::optional<mx::array>& residual);
mx::array matmul_reference(const cpu::MatmulStep& step, const mx::array& x,
                           const std::optional<mx::array>& residual);

/// See cpu/attention.h. Appends to the rows' blocks when evaluated; evaluating it twice writes the
/// same bytes twice.
///   qkv [tokens, step.qkv_columns()]   ->   [tokens, step.outputs()]
mx::array attention(cpu::Cpu& cpu, const cpu::AttentionStep& step,
                    std::vector<cpu::AttentionRow> rows,
                    std::shared_ptr<const std::vector<float>> cos_sin, const mx::array& qkv);
/// The same for one row that starts at position 0, without blocks.
mx::array attention_reference(const cpu::AttentionStep& step, const mx::array& cos_sin,
                              const mx::array& qkv);

/// Rows `ids` of the table, times `scale`.   ->   [ids, cols]
mx::array embed(cpu::Cpu& cpu, const cpu::PackedMatrix& table, std::vector<int32_t> ids,
                float scale);
mx::array embed_reference(const cpu::PackedMatrix& table, const std::vector<int32_t>& ids,
                          float scale);

/// Rows `indices` of x.   [tokens, cols]   ->   [indices, cols]
mx::array select_rows(const mx::array& x, std::vector<int32_t> indices);

/// The matrix as an array.   ->   [rows, cols]
mx::array unpack(const cpu::PackedMatrix& matrix);

}  // namespace cohort::kernels
