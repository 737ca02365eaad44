#include "kernels/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "tests/support/random_data.h"

namespace cohort::kernels::cpu {
namespace {

using test::random_floats;

struct Blocks {
  Blocks(const KvGeometry& geometry, int64_t tokens) {
    for (int64_t i = 0; i < (tokens + 63) / 64; ++i) {
      buffers.emplace_back(geometry.block_bytes());
      std::memset(buffers.back().data(), 0, geometry.block_bytes());
      pointers.push_back(buffers.back().data());
    }
  }
  std::vector<AlignedBuffer> buffers;
  std::vector<std::byte*> pointers;
};

struct Case {
  int heads, kv_heads, dim, rope_dims;
  int64_t window;
  bool bf16, norms;
};

struct Problem {
  explicit Problem(const Case& c, int token_count)
      : step{.geometry = {c.kv_heads, c.dim, c.bf16},
             .heads = c.heads,
             .scale = 1 / std::sqrt(static_cast<float>(c.dim)),
             .window = c.window,
             .norm_eps = 1e-6f,
             .rope_dims = c.rope_dims},
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
  std::vector<float> run(Cpu& cpu, int chunk) {
    std::vector<float> out(static_cast<size_t>(tokens) * step.outputs());
    Blocks blocks(step.geometry, tokens);
    for (int t = 0; t < tokens; t += chunk) {
      AttentionStep part = step;
      part.cos_sin = cos_sin.data() + static_cast<ptrdiff_t>(t) * step.rope_dims;
      const AttentionRow row{0, std::min(chunk, tokens - t), t, blocks.pointers.data()};
      attention(cpu, part, {&row, 1}, qkv.data() + static_cast<ptrdiff_t>(t) * step.qkv_columns(),
                out.data() + static_cast<ptrdiff_t>(t) * step.outputs());
    }
    return out;
  }

  AttentionStep step;
  int tokens;
  std::vector<float> qkv, norm, cos_sin;
};

const Case kCases[] = {
    {4, 2, 16, 16, 0, false, false},   {9, 3, 64, 64, 0, true, false},
    {4, 1, 256, 256, 100, true, true}, {4, 2, 24, 24, 8, false, true},
    {2, 2, 80, 40, 0, true, false},    {8, 1, 128, 128, 0, false, false},
};

/// Plain double attention over unrounded keys and values.
std::vector<double> reference(const Problem& p) {
  const AttentionStep& s = p.step;
  const int dim = s.geometry.head_dim, half = s.rope_dims / 2,
            group = s.heads / s.geometry.kv_heads;
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
    std::vector<std::vector<double>> keys, values;
    for (int t = 0; t < p.tokens; ++t) {
      keys.push_back(head(t, s.heads + h / group, true));
      values.push_back(head(t, s.heads + s.geometry.kv_heads + h / group, false));
      const auto q = head(t, h, true);
      const int begin = s.window > 0 ? std::max<int>(0, t - static_cast<int>(s.window) + 1) : 0;
      std::vector<double> weights;
      double sum = 0;
      for (int j = begin; j <= t; ++j) {
        double score = 0;
        for (int i = 0; i < dim; ++i) score += q[i] * keys[j][i];
        weights.push_back(std::exp(score * s.scale));
        sum += weights.back();
      }
      for (int j = begin; j <= t; ++j) {
        for (int i = 0; i < dim; ++i) {
          out[(static_cast<size_t>(t) * s.heads + h) * dim + i] +=
              weights[j - begin] / sum * values[j][i];
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
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], want[i], c.bf16 ? 0.05 : 2e-5) << "dim " << c.dim << " at " << i;
    }
  }
}

TEST(Attention, SameBitsForAnyChunkingThreadsAndInstructionSet) {
  for (const Case& c : kCases) {
    Problem p(c, 300);
    Cpu scalar(1, kScalarKernels);
    const auto want = p.run(scalar, 1);
    for (const Kernels* kernels : available_kernels()) {
      Cpu cpu(2, *kernels);
      for (int chunk : {1, 7, 64, 300}) {
        const auto out = p.run(cpu, chunk);
        ASSERT_EQ(std::memcmp(out.data(), want.data(), want.size() * 4), 0)
            << "dim " << c.dim << ' ' << kernels->name << " chunk " << chunk;
      }
    }
  }
}

TEST(Attention, SameBitsBesideOtherRowsAndAcrossSegments) {
  const Case c{4, 2, 32, 32, 0, true, false};
  Problem p(c, 2300);  // three segments
  Cpu cpu(2);
  const auto want = p.run(cpu, 2300);
  EXPECT_EQ(want, p.run(cpu, 512));
  // Row b (2,300 tokens known) decodes its last token beside row a, which prefills 40 tokens.
  Blocks a(p.step.geometry, 40), b(p.step.geometry, 2300);
  std::vector<float> out(want.size());
  AttentionRow row{0, 2299, 0, b.pointers.data()};
  AttentionStep step = p.step;
  step.cos_sin = p.cos_sin.data();
  attention(cpu, step, {&row, 1}, p.qkv.data(), out.data());
  std::vector<float> pack(p.qkv.begin(), p.qkv.begin() + 40 * step.qkv_columns());
  pack.insert(pack.end(), p.qkv.end() - step.qkv_columns(), p.qkv.end());
  std::vector<float> cos_sin(p.cos_sin.begin(), p.cos_sin.begin() + 40 * step.rope_dims);
  cos_sin.insert(cos_sin.end(), p.cos_sin.end() - step.rope_dims, p.cos_sin.end());
  step.cos_sin = cos_sin.data();
  const AttentionRow rows[] = {{0, 40, 0, a.pointers.data()}, {40, 1, 2299, b.pointers.data()}};
  attention(cpu, step, rows, pack.data(), out.data());
  EXPECT_EQ(std::memcmp(out.data(), want.data(), 40 * step.outputs() * 4), 0);
  EXPECT_EQ(std::memcmp(out.data() + 40 * step.outputs(), want.data() + 2299 * step.outputs(),
                        step.outputs() * 4),
            0);
}

}  // namespace
}  // namespace cohort::kernels::cpu
