#include "kernels/cpu/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "tests/support/random_data.h"

namespace cohort::kernels::cpu {
namespace {

using test::random_floats;

/// What blocks hold before something is written to them.
enum class Fill { kZeros, kOnes, kRandom };

struct Blocks {
  Blocks(const KvGeometry& geometry, int64_t tokens, Fill fill = Fill::kZeros) {
    for (int64_t i = 0; i < (tokens + 63) / 64; ++i) {
      const size_t bytes = geometry.block_bytes();
      buffers.emplace_back(bytes);
      std::byte* data = buffers.back().data();
      std::memset(data, fill == Fill::kOnes ? 0xff : 0, bytes);
      if (fill == Fill::kRandom) {
        const auto random = test::random_bytes(bytes, static_cast<uint32_t>(i));
        std::memcpy(data, random.data(), bytes);
      }
      pointers.push_back(data);
    }
  }
  std::vector<AlignedBuffer> buffers;
  std::vector<std::byte*> pointers;
};

struct Case {
  int heads, kv_heads, dim, rope_dims;
  int64_t window;
  KvEncoding encoding;
  bool norms;
  int64_t keep = 0;
};

std::string describe(const Case& c) {
  return fmt::format("dim {} window {} kind {} k{} v{} group {}", c.dim, c.window,
                     static_cast<int>(c.encoding.kind), c.encoding.key_bits, c.encoding.value_bits,
                     c.encoding.group);
}

struct Problem {
  explicit Problem(const Case& c, int token_count)
      : step{.heads = c.heads,
             .kv_heads = c.kv_heads,
             .head_dim = c.dim,
             .scale = 1 / std::sqrt(static_cast<float>(c.dim)),
             .window = c.window,
             .keep = c.keep,
             .norm_eps = 1e-6f,
             .rope_dims = c.rope_dims},
        encoding(c.encoding),
        tokens(token_count),
        qkv(random_floats(static_cast<size_t>(token_count) * step.qkv_columns(), 21)),
        norm(random_floats(c.dim, 22)) {
    for (int t = 0; t < tokens; ++t) {
      for (int part = 0; part < 2; ++part) {
        for (int i = 0; i < c.rope_dims / 2; ++i) {
          const float angle =
              static_cast<float>(t) *
              std::pow(100.0f, -2.0f * static_cast<float>(i) / static_cast<float>(c.rope_dims));
          cos_sin.push_back(part == 0 ? std::cos(angle) : std::sin(angle));
        }
      }
    }
    if (c.norms) step.q_norm = step.k_norm = norm.data();
  }

  /// Runs `chunk` tokens at a time on one row.
  std::vector<float> run(Cpu& cpu, int chunk, Fill fill = Fill::kZeros) {
    std::vector<float> out(static_cast<size_t>(tokens) * step.outputs());
    Blocks blocks(geometry(), tokens, fill);
    for (int t = 0; t < tokens; t += chunk) {
      AttentionStep part = step;
      part.cos_sin = cos_sin.data() + static_cast<ptrdiff_t>(t) * step.rope_dims;
      const AttentionRow row{0, std::min(chunk, tokens - t), t, {encoding, blocks.pointers.data()}};
      attention(cpu, part, {&row, 1}, qkv.data() + static_cast<ptrdiff_t>(t) * step.qkv_columns(),
                out.data() + static_cast<ptrdiff_t>(t) * step.outputs());
    }
    return out;
  }

  KvGeometry geometry() const { return step.geometry(encoding); }

  AttentionStep step;
  KvEncoding encoding;
  int tokens;
  std::vector<float> qkv, norm, cos_sin;
};

constexpr KvEncoding kF32 = dense_kv(false), kBF16 = dense_kv(true);

const Case kCases[] = {
    {4, 2, 16, 16, 0, kF32, false},
    {9, 3, 64, 64, 0, kBF16, false},
    {4, 1, 256, 256, 100, kBF16, true},
    {4, 2, 24, 24, 8, kF32, true},
    {2, 2, 80, 40, 0, kBF16, false},
    {8, 1, 128, 128, 0, kF32, false},
    {2, 1, 72, 72, 0, kBF16, false},
    {2, 1, 512, 512, 0, kBF16, false},
    {4, 2, 32, 32, 20, kF32, false, 70},
    {9, 3, 64, 64, 0, affine_kv(8, 64), false},
    {4, 2, 64, 64, 40, affine_kv(4, 32), true},
    {4, 1, 128, 128, 0, affine_kv(8, 128), false},
    {2, 1, 96, 96, 0, affine_kv(8, 32), false},
    {6, 2, 64, 64, 0, turbo_kv(8, 3), false},
    {4, 2, 64, 64, 50, turbo_kv(4, 3), true},
    {4, 1, 128, 128, 0, turbo_kv(8, 4), false},
    {2, 1, 256, 256, 0, turbo_kv(5, 5), false},
    {2, 1, 512, 512, 0, turbo_kv(2, 2), false},
    {3, 1, 64, 64, 0, turbo_kv(8, 8), false},
};

/// Keys and values as attention is to see them: encoded and decoded.
struct Stored {
  std::vector<double> key, value;
};
Stored stored(const Problem& p, const std::vector<double>& key, const std::vector<double>& value) {
  KvGeometry one = p.geometry();
  one.kv_heads = 1;
  std::vector<std::byte> block(one.block_bytes());
  std::vector<float> k(key.begin(), key.end()), v(value.begin(), value.end());
  store_kv(one, block.data(), 0, 5, k.data(), v.data());
  load_kv(one, block.data(), 0, 5, k.data(), v.data());
  return {{k.begin(), k.end()}, {v.begin(), v.end()}};
}

/// Decode, then attend, in double.
std::vector<double> reference(const Problem& p) {
  const AttentionStep& s = p.step;
  const int dim = s.head_dim, half = s.rope_dims / 2, group = s.heads / s.kv_heads;
  const auto head = [&](int t, int h, bool place) {
    const float* in = p.qkv.data() + t * s.qkv_columns() + h * dim;
    std::vector<double> v(in, in + dim);
    if (!place) return v;
    if (s.q_norm != nullptr) {
      double squares = 0;
      for (double x : v) squares += x * x;
      for (int i = 0; i < dim; ++i) v[i] *= p.norm[i] / std::sqrt(squares / dim + 1e-6);
    }
    const float* cs = p.cos_sin.data() + t * s.rope_dims;
    for (int i = 0; i < half; ++i) {
      const double a = v[i], b = v[i + half];
      v[i] = a * cs[i] - b * cs[half + i];
      v[i + half] = b * cs[i] + a * cs[half + i];
    }
    return v;
  };
  std::vector<double> out(static_cast<size_t>(p.tokens) * s.outputs(), 0.0);
  for (int h = 0; h < s.heads; ++h) {
    std::vector<Stored> kept;
    for (int t = 0; t < p.tokens; ++t) {
      kept.push_back(stored(p, head(t, s.heads + h / group, true),
                            head(t, s.heads + s.kv_heads + h / group, false)));
      const auto q = head(t, h, true);
      const int begin = s.window > 0 ? std::max<int>(0, t - static_cast<int>(s.window) + 1) : 0;
      std::vector<double> weights(t + 1, 0.0);
      double sum = 0;
      for (int j = 0; j <= t; ++j) {
        if (j < begin && j / 64 * 64 >= s.keep) continue;
        double score = 0;
        for (int i = 0; i < dim; ++i) score += q[i] * kept[j].key[i];
        weights[j] = std::exp(score * s.scale);
        sum += weights[j];
      }
      for (int j = 0; j <= t; ++j) {
        for (int i = 0; i < dim; ++i) {
          out[(static_cast<size_t>(t) * s.heads + h) * dim + i] +=
              weights[j] / sum * kept[j].value[i];
        }
      }
    }
  }
  return out;
}

TEST(Attention, EqualsADoubleReference) {
  Cpu cpu(2);
  for (const Case& c : kCases) {
    Problem p(c, 150);
    const auto out = p.run(cpu, 64);
    const auto want = reference(p);
    double error = 0, norm = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      error += (out[i] - want[i]) * (out[i] - want[i]);
      norm += want[i] * want[i];
    }
    // Rarely a key or value rounds the other way in double. The kernels round centroids to whole
    // numbers up to 8192, the reference does not.
    const double most = c.encoding.kind == KvKind::kTurbo ? 4e-4 : 2e-4;
    EXPECT_LT(std::sqrt(error / norm), most) << describe(c);
  }
}

TEST(Attention, SameBitsForAnyChunkingThreadsAndInstructionSet) {
  int turn = 0;
  for (const Case& c : kCases) {
    Problem p(c, 200);  // three whole blocks and a part of one
    Cpu scalar(1, kScalarKernels);
    const auto want = p.run(scalar, 200);
    for (const Kernels* kernels : available_kernels()) {
      // The scalar kernels are slow: for them, the chunkings take turns over the cases.
      const bool slow = kernels->name == kScalarKernels.name;
      Cpu cpu(2, *kernels);
      for (int chunk : {1, 7, 64, 200}) {
        if (slow && turn++ % 4 != 0) continue;
        const auto out = p.run(cpu, chunk);
        ASSERT_EQ(std::memcmp(out.data(), want.data(), want.size() * 4), 0)
            << describe(c) << ' ' << kernels->name << " chunk " << chunk;
      }
    }
    ++turn;
  }
}

TEST(Attention, WhatUnusedSlotsHoldReachesNoResult) {
  for (const Case& c : kCases) {
    Problem p(c, 150);
    for (const Kernels* kernels : available_kernels()) {
      Cpu cpu(1, *kernels);
      for (const int chunk : {5, 64}) {
        const auto want = p.run(cpu, chunk);
        for (const Fill fill : {Fill::kOnes, Fill::kRandom}) {
          const auto out = p.run(cpu, chunk, fill);
          ASSERT_EQ(std::memcmp(out.data(), want.data(), want.size() * 4), 0)
              << describe(c) << ' ' << kernels->name << " chunk " << chunk;
        }
      }
    }
  }
}

TEST(Attention, SameBitsBesideOtherRowsAndAcrossSegments) {
  const Case c{4, 2, 32, 32, 0, kBF16, false};
  Problem p(c, 2300);  // three segments
  Cpu cpu(2);
  const auto want = p.run(cpu, 2300);
  EXPECT_EQ(want, p.run(cpu, 512));
  // Row b (2,300 tokens known) decodes its last token beside row a, which prefills 40 tokens.
  Blocks a(p.geometry(), 40), b(p.geometry(), 2300);
  std::vector<float> out(want.size());
  AttentionRow row{0, 2299, 0, {p.encoding, b.pointers.data()}};
  AttentionStep step = p.step;
  step.cos_sin = p.cos_sin.data();
  attention(cpu, step, {&row, 1}, p.qkv.data(), out.data());
  std::vector<float> pack(p.qkv.begin(), p.qkv.begin() + 40 * step.qkv_columns());
  pack.insert(pack.end(), p.qkv.end() - step.qkv_columns(), p.qkv.end());
  std::vector<float> cos_sin(p.cos_sin.begin(), p.cos_sin.begin() + 40 * step.rope_dims);
  cos_sin.insert(cos_sin.end(), p.cos_sin.end() - step.rope_dims, p.cos_sin.end());
  step.cos_sin = cos_sin.data();
  const AttentionRow rows[] = {{0, 40, 0, {p.encoding, a.pointers.data()}},
                               {40, 1, 2299, {p.encoding, b.pointers.data()}}};
  attention(cpu, step, rows, pack.data(), out.data());
  EXPECT_EQ(std::memcmp(out.data(), want.data(), 40 * step.outputs() * 4), 0);
  EXPECT_EQ(std::memcmp(out.data() + 40 * step.outputs(), want.data() + 2299 * step.outputs(),
                        step.outputs() * 4),
            0);
}

}  // namespace
}  // namespace cohort::kernels::cpu
