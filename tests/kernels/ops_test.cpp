// Each MLX node against its reference in plain MLX ops.

#include "kernels/ops.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/random_data.h"

namespace cohort::kernels {
namespace {

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
    return cpu::pack_dense(arena, cpu.pool(), rows, cols, cpu::CodeType::kF32, [&](int64_t row) {
      return reinterpret_cast<const std::byte*>(values.data() + row * cols);
    });
  }
  const cpu::QuantLayout layout{cpu::CodeType::kU4, cpu::ScaleType::kF16, true, 0, 32};
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

TEST(MatmulOp, EqualsItsReferenceForEveryEpilogue) {
  cpu::Cpu cpu(2);
  cpu::WeightArena arena;
  for (const auto& [tokens, cols, rows] : {std::tuple{1, 64, 48}, {7, 96, 33}, {70, 80, 64}}) {
    for (bool quantized : {false, true}) {
      const auto a = random_matrix(arena, cpu, rows, cols, quantized, 1);
      const auto b = random_matrix(arena, cpu, rows, cols, false, 2);
      const auto norm = random_floats(cols, 3), post = random_floats(rows, 4);
      const auto bias = random_floats(2 * rows, 5);
      const mx::array x = random_array({tokens, cols}, 6),
                      residual = random_array({tokens, rows}, 7);
      const cpu::MatmulStep steps[] = {{.norm = norm.data(),
                                        .norm_eps = 1e-5f,
                                        .matrices = {&a, &b},
                                        .bias = bias.data(),
                                        .precision = cpu::Precision::kF32},
                                       {.norm = norm.data(),
                                        .norm_eps = 1e-5f,
                                        .matrices = {&a, &b},
                                        .bias = bias.data(),
                                        .epilogue = cpu::Epilogue::kGated,
                                        .precision = cpu::Precision::kF32},
                                       {.matrices = {&a, &b},
                                        .epilogue = cpu::Epilogue::kGated,
                                        .activation = cpu::Activation::kGeluTanh,
                                        .precision = cpu::Precision::kF32},
                                       {.matrices = {&a},
                                        .epilogue = cpu::Epilogue::kResidual,
                                        .precision = cpu::Precision::kF32},
                                       {.post_norm = post.data(),
                                        .norm_eps = 1e-6f,
                                        .matrices = {&a},
                                        .epilogue = cpu::Epilogue::kResidual,
                                        .precision = cpu::Precision::kF32}};
      for (const cpu::MatmulStep& step : steps) {
        const auto add =
            step.epilogue == cpu::Epilogue::kResidual ? std::optional(residual) : std::nullopt;
        EXPECT_LT(largest_difference(matmul(cpu, step, x, add), matmul_reference(step, x, add)),
                  1e-4);
      }
    }
  }
}

TEST(AttentionOp, EqualsItsReferenceOverShapesWindowsAndNorms) {
  cpu::Cpu cpu(2);
  cpu::WeightArena arena;
  for (const auto& [heads, kv_heads, dim, rope, window] :
       {std::tuple{4, 2, 16, 16, 0}, {8, 1, 64, 32, 9}, {2, 2, 24, 24, 0}, {4, 4, 128, 128, 64}}) {
    const int tokens = 90;
    const auto norm = random_floats(dim, 31);
    cpu::AttentionStep step{.heads = heads,
                            .kv_heads = kv_heads,
                            .head_dim = dim,
                            .scale = 1 / std::sqrt(static_cast<float>(dim)),
                            .window = window,
                            .q_norm = norm.data(),
                            .k_norm = norm.data(),
                            .norm_eps = 1e-6f,
                            .rope_dims = rope};
    auto table = std::make_shared<std::vector<float>>();
    for (int t = 0; t < tokens; ++t) {
      for (int i = 0; i < rope; ++i) {
        const float angle = static_cast<float>(t) / static_cast<float>(1 + i % (rope / 2));
        table->push_back(i < rope / 2 ? std::cos(angle) : std::sin(angle));
      }
    }
    std::vector<cpu::AlignedBuffer> buffers;
    std::vector<std::byte*> blocks;
    const cpu::KvEncoding encoding = cpu::dense_kv(false);
    for (int i = 0; i < 2; ++i) {
      buffers.emplace_back(step.geometry(encoding).block_bytes());
      blocks.push_back(buffers.back().data());
    }
    const mx::array qkv = random_array({tokens, step.qkv_columns()}, 32);
    const mx::array out =
        attention(cpu, step, {{0, tokens, 0, {encoding, blocks.data()}}}, table, qkv);
    const mx::array cos_sin(table->begin(), {tokens, rope}, mx::float32);
    EXPECT_LT(largest_difference(out, attention_reference(step, cos_sin, qkv)), 1e-4) << dim;
  }
}

TEST(RowOps, EmbedAndSelectRowsEqualTheirDefinition) {
  cpu::Cpu cpu(2);
  cpu::WeightArena arena;
  const auto table = random_matrix(arena, cpu, 40, 64, true, 9);
  const std::vector<int32_t> ids{3, 39, 0, 3};
  const mx::array rows = embed(cpu, table, ids, 8.0f);
  EXPECT_EQ(largest_difference(rows, embed_reference(table, ids, 8.0f)), 0.0);
  EXPECT_EQ(largest_difference(select_rows(rows, {1, 3}),
                               mx::take(rows, mx::array({1, 3}, mx::int32), 0)),
            0.0);
}

}  // namespace
}  // namespace cohort::kernels
