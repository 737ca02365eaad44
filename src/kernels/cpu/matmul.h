#pragma once

#include <vector>

#include "kernels/cpu/cpu.h"

namespace cohort::kernels::cpu {

enum class Epilogue {
  kNone,      // out = y
  kGated,     // matrices = {gate, up}: out = activation(gate) * up
  kResidual,  // out = residual + y, or residual + rms_norm(y) with post_norm
};

/// One fused step over token rows: [norm] -> matrices side by side -> [bias] -> epilogue.
/// Pointers are borrowed and outlive the step.
struct MatmulStep {
  const float* norm = nullptr;       // [cols], RMS norm of the input; absent = none
  const float* post_norm = nullptr;  // [outputs], kResidual only
  float norm_eps = 0;
  std::vector<const PackedMatrix*> matrices;  // all [*, cols]; outputs concatenated
  const float* bias = nullptr;                // [sum of rows]
  Epilogue epilogue = Epilogue::kNone;
  Activation activation = Activation::kSilu;
  /// Quantized weights become f32 and multiply the activations as they are, instead of integers
  /// that multiply QuantizedRows: the reference.
  bool exact = false;

  int cols() const { return matrices.front()->cols; }
  int matrix_rows() const;  // sum over matrices
  int outputs() const { return epilogue == Epilogue::kGated ? matrices[0]->rows : matrix_rows(); }
};

/// Runs the step.
///   x          [rows, cols]
///   residual   [rows, outputs], kResidual only, else null
///   out        [rows, outputs]; may not overlap x or residual
///   invariant  a row of `out` depends on its row of x alone: not on rows, threads or kernels
///   thread     see Cpu
void matmul(Cpu& cpu, const MatmulStep& step, const float* x, const float* residual, int rows,
            float* out);

}  // namespace cohort::kernels::cpu
