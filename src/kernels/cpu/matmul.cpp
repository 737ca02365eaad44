#include "kernels/cpu/matmul.h"

#include <algorithm>

namespace cohort::kernels::cpu {
namespace {

constexpr int kRowsPerItem = 128;  // repay that tiles are opened, and stay in L2 while they pass by
constexpr int kColumns = kMostTiles * kTileRows;  // of what is computed at a time

/// The input in the forms that the step's matrices read.
struct Input {
  const float* f32;
  QuantizedRows quantized;
};

bool wants_integers(const MatmulStep& step, const PackedMatrix& m) {
  return !m.dense && !step.exact;
}

Input prepare(Cpu& cpu, const MatmulStep& step, const float* x, int rows, float** sums) {
  const int cols = step.cols();
  const size_t groups = (static_cast<size_t>(cols) + kGroup - 1) / kGroup;
  const bool any_integers =
      std::any_of(step.matrices.begin(), step.matrices.end(),
                  [&](const PackedMatrix* m) { return wants_integers(step, *m); });
  const auto n = static_cast<size_t>(rows);
  const Kernels& k = cpu.kernels();
  float* normed = nullptr;
  QuantizedRows quantized{
      .groups = static_cast<int>(groups), .rows = static_cast<ptrdiff_t>(n), .panel = k.panel};
  const size_t entries = any_integers ? quantized.entries() : 0;
  ScratchPlan plan;
  plan.add(normed, step.norm != nullptr ? n * cols : 0);
  plan.add(quantized.codes, entries * kGroup);
  plan.add(quantized.scales, entries);
  plan.add(quantized.sums, entries * 2);
  plan.add(quantized.scaled_sums, entries);
  plan.add(quantized.stands_out, entries);
  plan.add(quantized.low_codes, entries * kGroup);
  plan.add(quantized.low_sums, entries * 2);
  plan.add(*sums, step.post_norm != nullptr ? n * step.outputs() : 0);
  plan.bind(cpu.step_scratch(plan.bytes()));
  // Whole panels, whose rows share cache lines, once there are enough of them.
  const size_t rows_per_item = n >= k.panel * static_cast<size_t>(cpu.pool().size()) ? k.panel : 1;
  cpu.pool().parallel_for((n + rows_per_item - 1) / rows_per_item, [&](size_t item) {
    const size_t end = std::min(n, (item + 1) * rows_per_item);
    for (size_t row = item * rows_per_item; row < end; ++row) {
      const float* in = x + row * cols;
      if (step.norm != nullptr) {
        k.rms_norm(in, step.norm, step.norm_eps, cols, normed + row * cols);
        in = normed + row * cols;
      }
      if (any_integers) k.quantize(in, cols, static_cast<ptrdiff_t>(row), quantized);
    }
  });
  return {step.norm != nullptr ? normed : x, quantized};
}

/// One or two tiles of the output: of which matrix, and where their first column goes.
struct OutputTiles {
  size_t matrix;
  TileSpan tiles;
  int column;
  int columns;
};

/// Multiplies and adds the bias: y[count][kColumns].
void multiply(Cpu& cpu, const MatmulStep& step, const Input& input, size_t matrix,
              const OutputTiles& t, int first, int count, float* y) {
  const PackedMatrix& m = *step.matrices[matrix];
  if (wants_integers(step, m)) {
    cpu.kernels().matmul_int(m, t.tiles, input.quantized, first, count, y, kColumns);
  } else {
    cpu.kernels().matmul_f32(m, t.tiles, input.f32, step.cols(), first, count, y, kColumns);
  }
  if (step.bias == nullptr) return;
  const float* bias = step.bias + t.tiles.first * kTileRows;
  for (size_t i = 0; i < matrix; ++i) bias += step.matrices[i]->rows;
  for (int r = 0; r < count; ++r) {
    for (int c = 0; c < t.columns; ++c) y[r * kColumns + c] += bias[c];
  }
}

std::vector<OutputTiles> output_tiles(const MatmulStep& step) {
  std::vector<OutputTiles> all;
  int offset = 0;
  const size_t matrices = step.epilogue == Epilogue::kGated ? 1 : step.matrices.size();
  for (size_t i = 0; i < matrices; ++i) {
    const PackedMatrix& m = *step.matrices[i];
    for (int t = 0; t < m.tiles(); t += kMostTiles) {
      all.push_back({i,
                     {t, std::min(kMostTiles, m.tiles() - t)},
                     offset + t * kTileRows,
                     std::min(kColumns, m.rows - t * kTileRows)});
    }
    offset += m.rows;
  }
  return all;
}

void finish_tiles(Cpu& cpu, const MatmulStep& step, const Input& input, const OutputTiles& t,
                  int first, int count, const float* residual, float* out) {
  const ptrdiff_t outputs = step.outputs();
  const auto place_of = [&](int r) { return (first + r) * outputs + t.column; };
  // Rows lie far apart: asked for now, they are here when they are written.
  for (int r = 0; r < count; ++r) {
    for (int c = 0; c < t.columns; c += 16) __builtin_prefetch(out + place_of(r) + c, 1);
  }
  float y[kRowsPerItem * kColumns];
  multiply(cpu, step, input, t.matrix, t, first, count, y);
  if (step.epilogue == Epilogue::kGated) {
    float up[kRowsPerItem * kColumns];
    multiply(cpu, step, input, 1, t, first, count, up);
    for (int r = 0; r < count; ++r) {
      float* gates = y + r * kColumns;
      cpu.kernels().gate(step.activation, gates, up + r * kColumns, t.tiles.count * kTileRows,
                         gates);
    }
  }
  const bool add = step.epilogue == Epilogue::kResidual && step.post_norm == nullptr;
  for (int r = 0; r < count; ++r) {
    const ptrdiff_t at = place_of(r);
    for (int c = 0; c < t.columns; ++c) {
      out[at + c] = add ? residual[at + c] + y[r * kColumns + c] : y[r * kColumns + c];
    }
  }
}

}  // namespace

int MatmulStep::matrix_rows() const {
  int rows = 0;
  for (const PackedMatrix* m : matrices) rows += m->rows;
  return rows;
}

void matmul(Cpu& cpu, const MatmulStep& step, const float* x, const float* residual, int rows,
            float* out) {
  float* sums = nullptr;
  const Input input = prepare(cpu, step, x, rows, &sums);
  float* target = step.post_norm != nullptr ? sums : out;
  const std::vector<OutputTiles> tiles = output_tiles(step);
  const auto threads = static_cast<size_t>(cpu.pool().size());
  const size_t row_items = (static_cast<size_t>(rows) + kRowsPerItem - 1) / kRowsPerItem;
  // A few items a thread: enough to balance, not so many that claiming them shows.
  const size_t tiles_per_item = std::clamp<size_t>(tiles.size() * row_items / (threads * 8), 1, 8);
  const size_t tile_items = (tiles.size() + tiles_per_item - 1) / tiles_per_item;
  cpu.pool().parallel_for(tile_items * row_items, [&](size_t item) {
    const int first = static_cast<int>(item / tile_items) * kRowsPerItem;
    const int count = std::min(kRowsPerItem, rows - first);
    const size_t begin = item % tile_items * tiles_per_item;
    const size_t end = std::min(tiles.size(), begin + tiles_per_item);
    for (size_t t = begin; t < end; ++t) {
      finish_tiles(cpu, step, input, tiles[t], first, count, residual, target);
    }
  });
  if (step.post_norm == nullptr) return;
  const int outputs = step.outputs();
  cpu.pool().parallel_for(static_cast<size_t>(rows), [&](size_t row) {
    const size_t at = row * outputs;
    cpu.kernels().rms_norm(sums + at, step.post_norm, step.norm_eps, outputs, out + at);
    for (int i = 0; i < outputs; ++i) out[at + i] += residual[at + i];
  });
}

}  // namespace cohort::kernels::cpu
