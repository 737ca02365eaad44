// What one machine cannot compare: the bits of every instruction set of every machine. Who changes
// a golden digest here raises kArithmeticVersion.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/encodings/encoding.h"
#include "kernels/cpu/encodings/turboquant.h"
#include "kernels/cpu/matmul.h"
#include "tests/kernels_cpu/sample_matrices.h"
#include "tests/support/random_data.h"

namespace cohort::kernels::cpu {
namespace {

using test::random_floats;

/// FNV-1a, 64 bits.
class Digest {
 public:
  void add(const void* data, size_t bytes) {
    const auto* p = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ p[i]) * 0x100000001b3u;
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size() * sizeof(T));
  }
  std::string hex() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

/// Rows of activations as integers, not to be multiplied: without what is beyond the last panel.
struct Quantized {
  Quantized(const Kernels& kernels, const std::vector<float>& x, int rows)
      : cols(static_cast<int>(x.size()) / rows) {
    const int groups = (cols + kGroup - 1) / kGroup;
    const size_t entries = static_cast<size_t>(groups) * rows;
    codes.resize(entries * kGroup);
    low_codes.resize(entries * kGroup);
    scales.resize(entries);
    scaled_sums.resize(entries);
    stands_out.resize(entries);
    sums.resize(entries * 2);
    low_sums.resize(entries * 2);
    view = {codes.data(),
            scales.data(),
            sums.data(),
            scaled_sums.data(),
            stands_out.data(),
            low_codes.data(),
            low_sums.data(),
            groups,
            rows,
            kernels.panel};
    for (int r = 0; r < rows; ++r) kernels.quantize(x.data() + r * cols, cols, r, view);
  }
  int cols;
  std::vector<int8_t> codes, low_codes;
  std::vector<float> scales, scaled_sums;
  std::vector<int32_t> sums, low_sums;
  std::vector<uint8_t> stands_out;
  QuantizedRows view;
};

std::string digest_of_matmul(const Kernels& kernels) {
  Digest digest;
  Cpu cpu(1, kernels);
  WeightArena arena;
  // So wide, and so many, that tiles are opened, twice.
  const int rows = 40, cols = 33 * kGroup + 16, tokens = 37;
  auto x = random_floats(static_cast<size_t>(tokens) * cols, 31);
  auto norm = random_floats(cols, 32);
  x[5] = x[3 * cols + 70] = 50;  // stand out
  norm[5] = norm[70] = 1;
  for (const Sample& sample : samples(arena, cpu.pool(), rows, cols)) {
    for (const bool exact : {false, true}) {
      const MatmulStep step{
          .norm = norm.data(), .norm_eps = 1e-5f, .matrices = {&sample.matrix}, .exact = exact};
      std::vector<float> out(static_cast<size_t>(tokens) * rows);
      matmul(cpu, step, x.data(), nullptr, tokens, out.data());
      digest.add(out);
    }
  }
  return digest.hex();
}

std::string digest_of_attention(const Kernels& kernels) {
  Digest digest;
  Cpu cpu(1, kernels);
  const int tokens = 70;
  const AttentionStep step{
      .heads = 6, .kv_heads = 2, .head_dim = 64, .scale = 0.125f, .rope_dims = 32};
  const auto qkv = random_floats(static_cast<size_t>(tokens) * step.qkv_columns(), 33);
  const auto cos_sin = random_floats(static_cast<size_t>(tokens) * step.rope_dims, 34);
  for (const KvEncoding& encoding :
       {dense_kv(false), dense_kv(true), affine_kv(4, 32), affine_kv(8, 64), turbo_kv(2, 2),
        turbo_kv(4, 3), turbo_kv(5, 5), turbo_kv(8, 4), turbo_kv(8, 8)}) {
    const size_t bytes = step.geometry(encoding).block_bytes();
    AlignedBuffer memory(2 * bytes);
    std::byte* blocks[] = {memory.data(), memory.data() + bytes};
    AttentionStep with_rope = step;
    with_rope.cos_sin = cos_sin.data();
    const AttentionRow row{0, tokens, 0, {encoding, blocks}};
    std::vector<float> out(static_cast<size_t>(tokens) * step.outputs());
    attention(cpu, with_rope, {&row, 1}, qkv.data(), out.data());
    digest.add(memory.data(), memory.size());
    digest.add(out);
  }
  return digest.hex();
}

std::string digest_of_rows(const Kernels& kernels) {
  Digest digest;
  const int n = 1003;
  auto x = random_floats(n, 35, 9.0f);
  x[100] = 50;  // stands out
  const auto y = random_floats(n, 36);
  std::vector<float> out(n);
  const Quantized q(kernels, x, 1);
  digest.add(q.codes);
  digest.add(q.scales);
  digest.add(q.sums);
  digest.add(q.scaled_sums);
  digest.add(q.stands_out);
  digest.add(q.low_codes);
  digest.add(q.low_sums);
  for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    kernels.gate(activation, x.data(), y.data(), n, out.data());
    digest.add(out);
  }
  kernels.rms_norm(x.data(), y.data(), 1e-6f, n, out.data());
  digest.add(out);
  kernels.rope(x.data(), y.data(), n / 2, 0.7f, out.data());
  digest.add(out);
  kernels.exp_shifted(x.data(), 20.0f, 1.5f, n, out.data());
  digest.add(out);
  return digest.hex();
}

TEST(InstructionSets, GiveTheGoldenBitsOnEveryMachine) {
  for (const Kernels* kernels : available_kernels()) {
    EXPECT_EQ(digest_of_matmul(*kernels), "b427b98ef2750f80") << kernels->name;
    EXPECT_EQ(digest_of_attention(*kernels), "faa1ba7a4656f4d8") << kernels->name;
    EXPECT_EQ(digest_of_rows(*kernels), "de944723c98b2657") << kernels->name;
  }
}

/// The bits, but those of every NaN alike: processors differ in which one an operation makes.
std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&bits[i], &values[i], 4);
    if (std::isnan(values[i])) bits[i] = 0x7fc00000u;
  }
  return bits;
}

TEST(InstructionSets, AgreeOnWhatNaNAndInfinityTurnInto) {
  using Limits = std::numeric_limits<float>;
  const float hostile[] = {Limits::quiet_NaN(),
                           Limits::infinity(),
                           -Limits::infinity(),
                           -Limits::quiet_NaN(),
                           Limits::denorm_min(),
                           -Limits::denorm_min(),
                           Limits::max(),
                           -Limits::max(),
                           -0.0f,
                           88.5f,
                           -87.5f,
                           Limits::min()};
  const int n = 32, rows = 64;
  auto x = random_floats(static_cast<size_t>(n) * rows, 37);
  for (int r = 0; r < rows; ++r) {  // alone, in pairs and at other places of a vector
    x[r * n + r % n] = hostile[r % 12];
    x[r * n + (r + 7) % n] = hostile[r / 2 % 12];
  }
  // The last long row is harmless but for one value that stands out.
  std::fill(x.end() - 8 * n, x.end(), 1.0f);
  x.back() = 100;
  for (const Kernels* kernels : available_kernels()) {
    const auto expect_same = [&](auto kernel) {
      std::vector<float> want(x.size()), out(x.size());
      kernel(kScalarKernels, want.data());
      kernel(*kernels, out.data());
      EXPECT_EQ(bits_of(out), bits_of(want)) << kernels->name;
    };
    for (const int split : {rows, rows / 8}) {
      const Quantized want(kScalarKernels, x, split), q(*kernels, x, split);
      EXPECT_EQ(q.codes, want.codes) << kernels->name;
      EXPECT_EQ(q.sums, want.sums) << kernels->name;
      EXPECT_EQ(q.stands_out, want.stands_out) << kernels->name;
      EXPECT_TRUE(q.stands_out.back()) << kernels->name;
      EXPECT_EQ(q.low_codes, want.low_codes) << kernels->name;
      EXPECT_EQ(q.low_sums, want.low_sums) << kernels->name;
      EXPECT_EQ(bits_of(q.scales), bits_of(want.scales)) << kernels->name;
      EXPECT_EQ(bits_of(q.scaled_sums), bits_of(want.scaled_sums)) << kernels->name;
    }
    const int all = n * rows;
    for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      expect_same(
          [&](const Kernels& k, float* out) { k.gate(activation, x.data(), x.data(), all, out); });
    }
    expect_same([&](const Kernels& k, float* out) { k.exp_shifted(x.data(), 0, 1, all, out); });
    expect_same([&](const Kernels& k, float* out) {
      for (int r = 0; r < rows; ++r) k.rms_norm(x.data() + r * n, x.data(), 1e-6f, n, out + r * n);
    });
    for (int r = 0; r < rows; ++r) {
      EXPECT_EQ(kernels->argmax(x.data() + r * n, n), kScalarKernels.argmax(x.data() + r * n, n))
          << kernels->name << ' ' << r;
    }
  }
}

/// What `tokens` of a row get out of attention to themselves.
std::vector<float> attend(const Kernels& kernels, const AttentionStep& step,
                          const KvEncoding& encoding, int tokens, const std::vector<float>& qkv) {
  Cpu cpu(1, kernels);
  AlignedBuffer memory(blocks_for(tokens) * step.geometry(encoding).block_bytes());
  std::vector<std::byte*> blocks;
  for (int64_t i = 0; i < blocks_for(tokens); ++i) {
    blocks.push_back(memory.data() + i * step.geometry(encoding).block_bytes());
  }
  std::vector<float> out(static_cast<size_t>(tokens) * step.outputs());
  const AttentionRow row{0, tokens, 0, {encoding, blocks.data()}};
  attention(cpu, step, {&row, 1}, qkv.data(), out.data());
  return out;
}

TEST(InstructionSets, AgreeOnAttentionToHostileValues) {
  using Limits = std::numeric_limits<float>;
  const AttentionStep step{.heads = 4, .kv_heads = 1, .head_dim = 128, .scale = 0.09f};
  const int tokens = 70;
  auto qkv = random_floats(static_cast<size_t>(tokens) * step.qkv_columns(), 38);
  const float hostile[] = {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(),
                           Limits::max(), Limits::denorm_min()};
  for (size_t i = 0; i < 60; ++i) qkv[(i * 7919 + 5) % qkv.size()] = hostile[i % 5];
  for (const KvEncoding& encoding : {dense_kv(true), affine_kv(8, 128), affine_kv(4, 32),
                                     turbo_kv(8, 4), turbo_kv(5, 5), turbo_kv(2, 8)}) {
    const auto want = bits_of(attend(kScalarKernels, step, encoding, tokens, qkv));
    for (const Kernels* kernels : available_kernels()) {
      EXPECT_EQ(bits_of(attend(*kernels, step, encoding, tokens, qkv)), want)
          << kernels->name << ' ' << words(encoding);
    }
  }
}

TEST(InstructionSets, AttendToTheLargestCodes) {
  const AttentionStep step{.heads = 1, .kv_heads = 1, .head_dim = 128, .scale = 1};
  // Of the first token all codes but one are 255 and the values 1, of the second 0 and -1; the
  // query's codes are all the largest.
  std::vector<float> qkv(2 * step.qkv_columns(), 0.02f);
  std::fill_n(qkv.begin() + 128, 128, 0.99f);
  qkv[128] = -1;
  std::fill_n(qkv.begin() + 256, 128, 1.0f);
  std::fill_n(qkv.begin() + step.qkv_columns() + 128, 128, 0.0f);
  std::fill_n(qkv.begin() + step.qkv_columns() + 256, 128, -1.0f);
  const double score = 0.02 * (127 * 0.99 - 1), want = std::tanh(score / 2);
  for (const Kernels* kernels : available_kernels()) {
    const auto out = attend(*kernels, step, affine_kv(8, 128), 2, qkv);
    for (int d = 0; d < 128; ++d) ASSERT_NEAR(out[128 + d], want, 2e-3) << kernels->name;
  }
}

/// All weights the largest, all codes of values the lowest or the highest: the largest sums.
TEST(InstructionSets, AttendToTheLargestEntries) {
  constexpr int kDim = 64;
  for (const int bits : {2, 3, 4, 5, 8}) {
    const KvGeometry geometry{1, kDim, turbo_kv(8, bits)};
    for (const int code : {0, (1 << bits) - 1}) {
      std::vector<std::byte> block(geometry.block_bytes());
      const std::vector<float> ones(kDim, 1.0f);
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        store_kv(geometry, block.data(), 0, slot, ones.data(), ones.data());
        for (int d = 0; d < kDim; ++d) {
          std::byte* const vectors = value_vectors(geometry, block.data(), slot, d);
          put_code(vectors, bits, d % 16, slot % kGroup, static_cast<uint32_t>(code));
        }
        const uint16_t one = f32_to_f16(1.0f);
        for (int g = 0; g < geometry.groups(); ++g) {
          put_scale(scale_at(geometry, block.data(), kValueScales, g, slot), one);
        }
      }
      const std::vector<float> query(kDim, 0.0f);
      for (const Kernels* kernels : available_kernels()) {
        std::vector<float> state(kStateHeader + kDim, 0.0f);
        state[0] = -std::numeric_limits<float>::infinity();
        const std::byte* blocks[] = {block.data()};
        kernels->attend({.queries = {query.data()},
                         .begin = {0},
                         .end = {kBlockTokens},
                         .count = 1,
                         .blocks = blocks,
                         .first_block = 0,
                         .last_block = 1,
                         .geometry = geometry,
                         .kv_head = 0,
                         .state = state.data(),
                         .state_stride = kStateHeader + kDim});
        const float want = turbo_centroids(bits)[code];
        for (int d = 0; d < kDim; ++d) {
          ASSERT_NEAR(state[kStateHeader + d] / state[1], want, 1e-3f)
              << kernels->name << ' ' << bits << " bits";
        }
      }
    }
  }
}

TEST(InstructionSets, ReadEveryHalfAlike) {
  WeightArena arena;
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const float one = 1;
  for (NumberType type : {NumberType::kF16, NumberType::kBF16}) {
    Cpu scalar(1, kScalarKernels);
    const PackedMatrix column = pack_dense(arena, scalar.pool(), 65536, 1, type, [&](int64_t row) {
      return reinterpret_cast<const std::byte*>(&halves[row]);
    });
    const auto read = [&](Cpu& cpu) {
      std::vector<float> out(halves.size());
      matmul(cpu, {.matrices = {&column}}, &one, nullptr, 1, out.data());
      return bits_of(out);
    };
    const auto want = read(scalar);
    for (const Kernels* kernels : available_kernels()) {
      Cpu cpu(1, *kernels);
      EXPECT_EQ(read(cpu), want) << kernels->name;
    }
  }
}

}  // namespace
}  // namespace cohort::kernels::cpu
