#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/kv_block.h"
#include "kernels/cpu/packed_matrix.h"

// The SIMD kernels choose their instructions in GCC's way; clang, which fuzzes, has the plain ones.
#if defined(__x86_64__) && !defined(__clang__)
#define COHORT_X86_KERNELS
#elif defined(__aarch64__) && !defined(__clang__)
#define COHORT_ARM_KERNELS
#endif

namespace cohort::kernels::cpu {

enum class Activation { kSilu, kGeluTanh };

/// A group stands out whose largest value is more than so many times the root mean square of its
/// row (docs/performance.md).
constexpr float kStandsOut = 3.5f;

/// Activation rows as integers per group of 32: x ~ scale * code, |code| <= 127. Of the groups
/// whose largest value stands out of their row, where rounding costs most, x ~ scale * (128 * code
/// + low), |low| <= 64. In panels of rows that pass a tile together (the last one of what is left):
/// [panels][groups][rows].
struct QuantizedRows {
  int8_t* codes;        // [32] of each entry; 0 beyond cols
  float* scales;        // of each entry
  int32_t* sums;        // [2] of each entry: of 16 codes
  float* scaled_sums;   // of each entry: scale * sum of its codes, low ones and all
  uint8_t* stands_out;  // of each entry: whether it has low codes
  int8_t* low_codes;    // as codes and sums, of those that have
  int32_t* low_sums;
  int groups;
  ptrdiff_t rows;
  int panel;  // rows of a whole one: Kernels::panel

  /// Entries of every array. Of the last panel kernels read as many rows as of the others, and
  /// leave out what they find there.
  size_t entries() const { return static_cast<size_t>(rows * groups + panel); }
  /// Entries of a group in the panel of `row`: what lies between two groups of a row.
  ptrdiff_t panel_rows(ptrdiff_t row) const {
    return std::min<ptrdiff_t>(panel, rows - row / panel * panel);
  }
  /// The entry of group 0.
  ptrdiff_t entry(ptrdiff_t row) const { return row / panel * panel * groups + row % panel; }
};

constexpr int kMostTiles = 2;

/// Tiles of a matrix that are multiplied together, at most kMostTiles, their outputs side by side.
struct TileSpan {
  int first;
  int count;
};

/// Raised with every change that lets a kernel give other bits: saved state is bound to it.
constexpr int kArithmeticVersion = 5;

constexpr int kSegmentBlocks = 16;  // keys of 16 blocks are reduced first, then merged in order

/// Up to four queries of one row and kv head against the blocks [first_block, last_block), which
/// lie in one segment. The state of query i is state + i * state_stride: {max, sum, -, -, ... [16]}
/// then the unnormalized output [value_stride]; it must hold a fresh state (max -inf, rest 0). Of
/// turboquant the output is of rotated values.
struct AttendTile {
  const float* queries[4];   // scaled, [head_dim]
  int64_t begin[4], end[4];  // visible keys of each query, absolute positions,
  int64_t keep;              // and those of the blocks below this position
  int count;
  const std::byte* const* blocks;  // [block] of the row
  int64_t first_block, last_block;
  KvGeometry geometry;
  int kv_head;
  float* state;
  ptrdiff_t state_stride;
};
constexpr int kStateHeader = 16;

/// The kernels of one instruction set. All sets give equal bits: exact integer sums, and for floats
/// one fixed order of operations per output lane (sums across lanes by one fixed tree).
struct Kernels {
  const char* name;
  int panel;  // rows of activations that matmul_int takes together
  /// out[i] = x[i] / rms(x) * weight[i]
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* out);
  /// Fills row `row` of `out` from x[n]: a row's codes depend on that row alone.
  void (*quantize)(const float* x, int n, ptrdiff_t row, const QuantizedRows& out);
  /// out[r * stride + lane] = row `lane` of the tiles . x row (first + r), r in [0, count); `first`
  /// begins a panel.
  void (*matmul_int)(const PackedMatrix& matrix, TileSpan tiles, const QuantizedRows& x, int first,
                     int count, float* out, ptrdiff_t stride);
  void (*matmul_f32)(const PackedMatrix& matrix, TileSpan tiles, const float* x, ptrdiff_t x_stride,
                     int first, int count, float* out, ptrdiff_t stride);
  /// out[i] = activation(gate[i]) * up[i]
  void (*gate)(Activation activation, const float* gate, const float* up, int n, float* out);
  /// Rotates pairs (i, i + half); cos_sin holds cos[half], sin[half]. Then multiplies by `scale`.
  void (*rope)(const float* x, const float* cos_sin, int half, float scale, float* out);
  void (*attend)(const AttendTile& tile);
  /// Merges state b (later keys) into a.
  void (*merge)(float* a, const float* b, int value_stride);
  /// Index of the largest of x[0, n); the first one of equals. NaN never wins.
  int64_t (*argmax)(const float* x, int64_t n);
  /// out[i] = exp((x[i] - shift) * factor)
  void (*exp_shifted)(const float* x, float shift, float factor, int64_t n, float* out);
};

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;  // null members where not built for this architecture
extern const Kernels kAvxVnniKernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAmxKernels;
extern const Kernels kNeonKernels;
extern const Kernels kNeonI8mmKernels;

/// The sets that this machine can run, best first; the last is scalar.
std::vector<const Kernels*> available_kernels();
/// The first of them, or the one that the environment variable COHORT_ISA names.
///   throws  Error{kUnsupported} listing the sets if this machine has none of that name
const Kernels& best_kernels();

}  // namespace cohort::kernels::cpu
