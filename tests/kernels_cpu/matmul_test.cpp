#include "kernels/cpu/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/kernels_cpu/sample_matrices.h"
#include "tests/support/random_data.h"

namespace cohort::kernels::cpu {
namespace {

using test::random_floats;

TEST(Matmul, EqualsADoubleReferenceOnTheUnpackedWeights) {
  Cpu cpu(2);
  WeightArena arena;
  for (const auto& [rows, cols] : {std::pair{48, 256}, {33, 288}, {5, 80}}) {
    for (const Sample& sample : samples(arena, cpu.pool(), rows, cols)) {
      const int tokens = 5;
      const auto x = random_floats(static_cast<size_t>(tokens) * cols, 3);
      for (const bool exact : {false, true}) {
        const MatmulStep step{.matrices = {&sample.matrix}, .exact = exact};
        std::vector<float> out(static_cast<size_t>(tokens) * rows);
        matmul(cpu, step, x.data(), nullptr, tokens, out.data());
        std::vector<float> weights(cols);
        for (int r = 0; r < rows; ++r) {
          sample.matrix.unpack_row(r, weights.data());
          for (int t = 0; t < tokens; ++t) {
            double want = 0, size = 0;
            for (int k = 0; k < cols; ++k) {
              const double term = double{x[t * cols + k]} * weights[k];
              want += term;
              size += term * term;
            }
            const double tolerance = exact || sample.matrix.dense ? 1e-5 : 0.04;
            EXPECT_NEAR(out[t * rows + r], want, tolerance * (std::sqrt(size) + 1e-3))
                << sample.name << " row " << r << (exact ? " exact" : "");
          }
        }
      }
    }
  }
}

TEST(Matmul, SameBitsForAnyRowCountThreadsAndInstructionSet) {
  Cpu reference(1, kScalarKernels);
  WeightArena arena;
  const int rows = 40, tokens = 83;
  const int cols = 33 * kGroup + 16;  // more groups than are opened at a time
  auto x = random_floats(static_cast<size_t>(tokens) * cols, 5);
  auto norm = random_floats(cols, 6);
  for (int t = 0; t < tokens; t += 3) {  // stand out
    x[t * cols + t % 7 * 40] = 30;
    norm[t % 7 * 40] = 1;
  }
  const auto bias = random_floats(rows, 8);
  for (const Sample& sample : samples(arena, reference.pool(), rows, cols)) {
    for (const bool exact : {false, true}) {
      const MatmulStep step{.norm = norm.data(),
                            .norm_eps = 1e-5f,
                            .matrices = {&sample.matrix},
                            .bias = bias.data(),
                            .exact = exact};
      std::vector<float> want(static_cast<size_t>(tokens) * rows);
      for (int t = 0; t < tokens; ++t) {
        matmul(reference, step, x.data() + t * cols, nullptr, 1, want.data() + t * rows);
      }
      for (const Kernels* kernels : available_kernels()) {
        Cpu cpu(3, *kernels);
        for (int batch : {1, 2, 3, 5, 16, 83}) {
          std::vector<float> out(want.size());
          for (int t = 0; t < tokens; t += batch) {
            matmul(cpu, step, x.data() + t * cols, nullptr, std::min(batch, tokens - t),
                   out.data() + t * rows);
          }
          ASSERT_EQ(std::memcmp(out.data(), want.data(), want.size() * 4), 0)
              << sample.name << ' ' << kernels->name << " batch " << batch
              << (exact ? " exact" : "");
        }
      }
    }
  }
}

// A row whose first group holds a value far above its others: with 8 bits alone these would be
// lost.
TEST(Matmul, AGroupThatStandsOutKeepsItsSmallValues) {
  Cpu cpu(1);
  WeightArena arena;
  const int rows = 16, cols = 256;
  for (const Sample& sample : samples(arena, cpu.pool(), rows, cols)) {
    auto x = random_floats(cols, 7);
    x[5] = 100;
    std::vector<float> with(rows), spike(rows), want(rows);
    std::vector<float> only(cols, 0.0f);
    only[5] = 100;
    const MatmulStep step{.matrices = {&sample.matrix}};
    matmul(cpu, step, x.data(), nullptr, 1, with.data());
    matmul(cpu, step, only.data(), nullptr, 1, spike.data());
    x[5] = 0;
    MatmulStep reference = step;
    reference.exact = true;
    matmul(cpu, reference, x.data(), nullptr, 1, want.data());
    double error = 0, size = 0;
    for (int r = 0; r < rows; ++r) {
      error += std::pow(double{with[r]} - spike[r] - want[r], 2);
      size += double{want[r]} * want[r];
    }
    EXPECT_LT(error, 4e-4 * size) << sample.name;
  }
}

TEST(Matmul, EpiloguesEqualTheirDefinition) {
  Cpu cpu(2);
  WeightArena arena;
  const int hidden = 64, inner = 40, tokens = 9;
  const auto x = random_floats(static_cast<size_t>(tokens) * hidden, 1);
  const auto residual = random_floats(static_cast<size_t>(tokens) * hidden, 2);
  const auto post = random_floats(hidden, 4);
  const Sample gate_matrix = dense_sample(arena, cpu.pool(), NumberType::kF32, inner, hidden);
  const Sample up = block_sample(arena, cpu.pool(), *block_format("Q8_0"), inner, hidden);
  const auto plain = [&](const PackedMatrix& m, const float* in) {
    std::vector<float> out(static_cast<size_t>(tokens) * m.rows);
    matmul(cpu, {.matrices = {&m}, .exact = true}, in, nullptr, tokens, out.data());
    return out;
  };
  for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    std::vector<float> out(static_cast<size_t>(tokens) * inner);
    matmul(cpu,
           {.matrices = {&gate_matrix.matrix, &up.matrix},
            .epilogue = Epilogue::kGated,
            .activation = activation,
            .exact = true},
           x.data(), nullptr, tokens, out.data());
    const auto g = plain(gate_matrix.matrix, x.data());
    const auto u = plain(up.matrix, x.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const double v = g[i];
      const double want =
          activation == Activation::kSilu
              ? v / (1 + std::exp(-v))
              : 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      EXPECT_NEAR(out[i], want * u[i], 2e-6 * (1 + std::abs(want * u[i])));
    }
  }
  const Sample square = dense_sample(arena, cpu.pool(), NumberType::kBF16, hidden, hidden);
  const auto y = plain(square.matrix, x.data());
  for (const float* post_norm : {static_cast<const float*>(nullptr), post.data()}) {
    std::vector<float> out(y.size());
    matmul(cpu,
           {.post_norm = post_norm,
            .norm_eps = 1e-6f,
            .matrices = {&square.matrix},
            .epilogue = Epilogue::kResidual},
           x.data(), residual.data(), tokens, out.data());
    for (int t = 0; t < tokens; ++t) {
      double squares = 0;
      for (int i = 0; i < hidden; ++i) squares += double{y[t * hidden + i]} * y[t * hidden + i];
      for (int i = 0; i < hidden; ++i) {
        const double scale = post_norm ? post[i] / std::sqrt(squares / hidden + 1e-6) : 1.0;
        EXPECT_NEAR(out[t * hidden + i], residual[t * hidden + i] + y[t * hidden + i] * scale,
                    1e-5);
      }
    }
  }
}

TEST(Matmul, UnpackedRowsEqualTheFormatsDefinition) {
  ThreadPool pool(1);
  WeightArena arena;
  // Q8_0, one block: d = 0.5, codes -16 .. 15.
  std::vector<uint8_t> bytes(34);
  set_half(bytes.data(), 0.5f);
  for (int i = 0; i < 32; ++i) bytes[2 + i] = static_cast<uint8_t>(i - 16);
  const BlockFormat& format = *block_format("Q8_0");
  const PackedMatrix m =
      pack_quantized(arena, pool, 1, 32, format.layout, [&](int64_t, int64_t g, DecodedGroup& out) {
        format.decode(reinterpret_cast<const std::byte*>(bytes.data()), g, out);
      });
  float row[32];
  m.unpack_row(0, row);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(row[i], 0.5f * static_cast<float>(i - 16));
}

}  // namespace
}  // namespace cohort::kernels::cpu
