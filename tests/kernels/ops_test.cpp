// Each node of our kernels against the same in plain MLX ops.

#include "kernels/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tests/support/random_data.h"

namespace cohort::kernels {
namespace {

// Where the default device is a GPU, its products are f32, too.
[[maybe_unused]] const int no_tf32 = ::setenv("MLX_ENABLE_TF32", "0", 1);

using test::random_bytes;
using test::random_floats;

mx::array random_array(mx::Shape shape, uint32_t seed, float scale = 1.0f) {
  size_t n = 1;
  for (int d : shape) n *= static_cast<size_t>(d);
  const auto values = random_floats(n, seed, scale);
  return mx::array(values.begin(), shape, mx::float32);
}

/// A matrix of small random values in the given storage.
cpu::PackedMatrix random_matrix(cpu::WeightArena& arena, cpu::Cpu& cpu, int rows, int cols,
                                bool quantized, uint32_t seed) {
  if (!quantized) {
    const auto values = random_floats(static_cast<size_t>(rows) * cols, seed, 0.1f);
    return cpu::pack_dense(arena, cpu.pool(), rows, cols, cpu::NumberType::kF32, [&](int64_t row) {
      return reinterpret_cast<const std::byte*>(values.data() + row * cols);
    });
  }
  const cpu::QuantLayout layout{4, cpu::NumberType::kF16, true, 0, 32};
  return cpu::pack_quantized(
      arena, cpu.pool(), rows, cols, layout, [&](int64_t row, int64_t g, cpu::DecodedGroup& out) {
        const auto bytes = random_bytes(32, seed + static_cast<uint32_t>(row * 977 + g));
        for (int i = 0; i < 32; ++i) out.codes[i] = bytes[i] & 15;
        out.scale[0] = out.scale[1] = 0.03125f;
        out.min = -0.25f;
      });
}

double largest_difference(const mx::array& a, const mx::array& b) {
  mx::array d = mx::max(mx::abs(mx::subtract(a, b)));
  return d.item<float>();
}

TEST(MatmulOp, EqualsPlainOpsForEveryEpilogue) {
  cpu::Cpu cpu(2);
  CpuOps ops(cpu);
  cpu::WeightArena arena;
  for (const auto& [tokens, cols, rows] : {std::tuple{1, 64, 48}, {7, 96, 33}, {70, 80, 64}}) {
    for (bool quantized : {false, true}) {
      const auto a = random_matrix(arena, cpu, rows, cols, quantized, 1);
      const auto b = random_matrix(arena, cpu, rows, cols, false, 2);
      const auto norm = random_floats(cols, 3), post = random_floats(rows, 4);
      const auto bias = random_floats(2 * rows, 5);
      const mx::array x = random_array({tokens, cols}, 6),
                      residual = random_array({tokens, rows}, 7);
      const cpu::MatmulStep steps[] = {
          {.norm = norm.data(),
           .norm_eps = 1e-5f,
           .matrices = {&a, &b},
           .bias = bias.data(),
           .exact = true},
          {.norm = norm.data(),
           .norm_eps = 1e-5f,
           .matrices = {&a, &b},
           .bias = bias.data(),
           .epilogue = cpu::Epilogue::kGated,
           .exact = true},
          {.matrices = {&a, &b},
           .epilogue = cpu::Epilogue::kGated,
           .activation = cpu::Activation::kGeluTanh,
           .exact = true},
          {.matrices = {&a}, .epilogue = cpu::Epilogue::kResidual, .exact = true},
          {.post_norm = post.data(),
           .norm_eps = 1e-6f,
           .matrices = {&a},
           .epilogue = cpu::Epilogue::kResidual,
           .exact = true}};
      for (const cpu::MatmulStep& step : steps) {
        const auto add =
            step.epilogue == cpu::Epilogue::kResidual ? std::optional(residual) : std::nullopt;
        PlainOps plain(cpu);
        EXPECT_LT(largest_difference(ops.matmul(step, x, add), plain.matmul(step, x, add)), 1e-4);
      }
    }
  }
}

/// cos and sin of some angles.   ->   [tokens, dims]
mx::array angles(int tokens, int dims) {
  std::vector<float> table;
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < dims; ++i) {
      const float angle = static_cast<float>(t) / static_cast<float>(1 + i % (dims / 2));
      table.push_back(i < dims / 2 ? std::cos(angle) : std::sin(angle));
    }
  }
  return mx::array(table.begin(), {tokens, dims}, mx::float32);
}

TEST(AttentionOp, EqualsPlainOpsOverShapesWindowsNormsAndRows) {
  cpu::Cpu cpu(2);
  CpuOps ops(cpu);
  for (const auto& [heads, kv_heads, dim, rope, window, keep] : {std::tuple{4, 2, 16, 16, 0, 0},
                                                                 {8, 1, 64, 32, 9, 0},
                                                                 {2, 2, 24, 24, 0, 0},
                                                                 {4, 4, 128, 128, 70, 0},
                                                                 {2, 1, 16, 16, 30, 64}}) {
    PlainOps plain(cpu);
    const auto norm = random_floats(dim, 31);
    const cpu::AttentionStep step{.heads = heads,
                                  .kv_heads = kv_heads,
                                  .head_dim = dim,
                                  .scale = 1 / std::sqrt(static_cast<float>(dim)),
                                  .window = window,
                                  .keep = keep,
                                  .q_norm = norm.data(),
                                  .k_norm = norm.data(),
                                  .norm_eps = 1e-6f,
                                  .rope_dims = rope};
    const cpu::KvEncoding encoding = cpu::dense_kv(false);
    std::vector<cpu::AlignedBuffer> buffers;
    std::vector<std::byte*> blocks[2];
    const std::vector<uint32_t> ids[2] = {{4, 0, 2}, {1, 9, 3}};
    for (auto& row : blocks) {
      for (int i = 0; i < 3; ++i) {
        row.push_back(buffers.emplace_back(step.geometry(encoding).block_bytes()).data());
      }
    }
    int64_t at[2] = {0, 0};
    for (const auto& [first, second] : {std::pair{90, 1}, {1, 70}, {1, 1}, {40, 100}}) {
      const mx::array qkv = random_array({first + second, step.qkv_columns()}, 32 + first);
      const std::vector<cpu::AttentionRow> rows{
          {0, first, at[0], {encoding, blocks[0].data(), ids[0].data()}},
          {first, second, at[1], {encoding, blocks[1].data(), ids[1].data()}}};
      const mx::array cos_sin = angles(first + second, rope);
      EXPECT_LT(largest_difference(ops.attention(step, rows, cos_sin, qkv),
                                   plain.attention(step, rows, cos_sin, qkv)),
                1e-4)
          << dim << " at " << at[0];
      at[0] += first;
      at[1] += second;
    }
  }
}

TEST(RowOps, EmbedAndSelectRowsEqualTheirDefinition) {
  cpu::Cpu cpu(2);
  CpuOps ops(cpu);
  PlainOps plain(cpu);
  cpu::WeightArena arena;
  const auto table = random_matrix(arena, cpu, 40, 64, true, 9);
  const std::vector<int32_t> ids{3, 39, 0, 3};
  const mx::array rows = ops.embed(table, ids, 8.0f);
  EXPECT_EQ(largest_difference(rows, plain.embed(table, ids, 8.0f)), 0.0);
  EXPECT_EQ(largest_difference(ops.select_rows(rows, {1, 3}), plain.select_rows(rows, {1, 3})),
            0.0);
}

}  // namespace
}  // namespace cohort::kernels
