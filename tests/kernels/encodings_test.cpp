// Codes, scales and decoded values of every encoding equal the goldens'.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>
#include <cstring>
#include <unordered_map>

#include "base/bit_stream.h"
#include "kernels/cpu/encodings/affine.h"
#include "kernels/cpu/encodings/encoding.h"
#include "kernels/cpu/encodings/turboquant.h"
#include "kernels/cpu/kernels.h"

namespace cohort::kernels::cpu {
namespace {

namespace mx = mlx::core;

class Golden {
 public:
  explicit Golden(const std::string& file)
      : tensors_(mx::load_safetensors(std::string(COHORT_GOLDENS) + "/turboquant/" + file).first) {}

  /// The tensor as floats, whatever it is stored as.
  std::vector<float> floats(const std::string& name) const {
    return values<float>(mx::astype(tensors_.at(name), mx::float32));
  }
  template <class T>
  std::vector<T> raw(const std::string& name) const {
    return values<T>(tensors_.at(name));
  }

 private:
  template <class T>
  static std::vector<T> values(mx::array a) {
    a = mx::contiguous(a);
    a.eval();
    return {a.data<T>(), a.data<T>() + a.size()};
  }

  std::unordered_map<std::string, mx::array> tensors_;
};

constexpr int kHeads = 2, kTokens = 5, kFirstSlot = 29;  // the slots cross groups of 16 and 32

/// Both heads and all tokens of a golden, stored in one block.
std::vector<std::byte> stored(const KvGeometry& g, const std::vector<float>& k,
                              const std::vector<float>& v) {
  std::vector<std::byte> block(g.block_bytes(), std::byte{0xa5});
  for (int t = kTokens - 1; t >= 0; --t) {
    for (int h = 0; h < kHeads; ++h) {
      const size_t at = static_cast<size_t>(h * kTokens + t) * g.head_dim;
      store_kv(g, block.data(), h, kFirstSlot + t, v.data() + at, k.data() + at);
      store_kv(g, block.data(), h, kFirstSlot + t, k.data() + at, v.data() + at);  // replaces it
    }
  }
  return block;
}

/// Calls visit(index of the element in the golden, head, slot, channel).
template <class Visit>
void for_each_element(const KvGeometry& g, Visit visit) {
  for (int h = 0; h < kHeads; ++h) {
    for (int t = 0; t < kTokens; ++t) {
      for (int d = 0; d < g.head_dim; ++d) {
        visit(static_cast<size_t>(h * kTokens + t) * g.head_dim + d, h, kFirstSlot + t, d);
      }
    }
  }
}

struct Decoded {
  std::vector<float> k, v;
};
Decoded decoded(const KvGeometry& g, const std::vector<std::byte>& block) {
  const auto size = static_cast<size_t>(kHeads * kTokens * g.head_dim);
  Decoded out{std::vector<float>(size), std::vector<float>(size)};
  for (int h = 0; h < kHeads; ++h) {
    for (int t = 0; t < kTokens; ++t) {
      const size_t at = static_cast<size_t>(h * kTokens + t) * g.head_dim;
      load_kv(g, block.data(), h, kFirstSlot + t, out.k.data() + at, out.v.data() + at);
    }
  }
  return out;
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, float relative) {
  float peak = 0;
  for (float w : want) peak = std::max(peak, std::fabs(w));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], relative * peak) << "at " << i;
  }
}

TEST(TurboQuant, TablesEqualTheGoldens) {
  const Golden tables("tables.safetensors");
  for (int bits : {2, 3, 4, 5, 8}) {
    const auto centroids = tables.floats(fmt::format("centroids.{}", bits));
    ASSERT_EQ(std::memcmp(centroids.data(), turbo_centroids(bits), centroids.size() * 4), 0)
        << bits;
    // Just below a boundary belongs to the lower code. A group whose RMS is 1 shows it.
    const auto boundaries = tables.floats(fmt::format("boundaries.{}", bits));
    for (size_t b = 0; b < boundaries.size(); ++b) {
      if (std::fabs(boundaries[b]) > 3) continue;
      std::vector<float> group(32, std::sqrt((32 - boundaries[b] * boundaries[b]) / 31));
      uint8_t codes[32];
      group[0] = boundaries[b] - 1e-4f * std::fabs(boundaries[b]) - 1e-5f;
      encode_turbo_values(group.data(), bits, codes);
      EXPECT_EQ(codes[0], b);
      group[0] = boundaries[b] + 1e-4f * std::fabs(boundaries[b]) + 1e-5f;
      encode_turbo_values(group.data(), bits, codes);
      EXPECT_EQ(codes[0], b + 1);
    }
  }
  for (int dim : {64, 128, 256, 512}) {
    const auto signs = tables.floats(fmt::format("signs.{}", dim));
    std::vector<float> x(dim, 0.0f);
    for (int d = 0; d < dim; ++d) {
      std::fill(x.begin(), x.end(), 0.0f);
      x[0] = 1;  // whose transform is positive everywhere
      unrotate_values(dim, x.data());
      ASSERT_EQ(std::copysign(1.0f, x[d]), signs[d]) << dim << " channel " << d;
    }
  }
}

TEST(TurboQuant, CodesScalesAndDecodedValuesEqualTheGoldens) {
  for (int dim : {64, 128, 256, 512}) {
    const Golden golden(fmt::format("d{}.safetensors", dim));
    const auto k = golden.floats("k"), v = golden.floats("v");
    for (const auto& [k_bits, v_bits] : {std::pair{8, 3}, {8, 4}, {4, 3}, {2, 2}, {5, 5}, {8, 2}}) {
      SCOPED_TRACE(fmt::format("d{} k{}v{}", dim, k_bits, v_bits));
      const KvGeometry g{kHeads, dim, turbo_kv(k_bits, v_bits)};
      const auto block = stored(g, k, v);
      const auto k_index = golden.floats(fmt::format("k{}.idx", k_bits));
      const auto v_index = golden.floats(fmt::format("v{}.idx", v_bits));
      const auto packed = golden.raw<uint8_t>(fmt::format("v{}.packed", v_bits));
      const auto k_scale = golden.floats(fmt::format("k{}.scale", k_bits));
      const auto k_zero = golden.floats(fmt::format("k{}.zero", k_bits));
      const auto v_scale = golden.floats(fmt::format("v{}.scale", v_bits));
      for_each_element(g, [&](size_t i, int h, int slot, int d) {
        const std::byte* head = block.data() + h * g.head_bytes();
        const float offset = k_bits == 8 ? 128 : 0;
        ASSERT_EQ(static_cast<float>(key_code(g, head, slot, d)) - offset, k_index[i]);
        ASSERT_EQ(static_cast<float>(value_code(g, head, slot, d)), v_index[i]);
        const auto scale = [&](KvScales array) {
          return f16_to_f32(get_scale(scale_at(g, head, array, d / 32, slot)));
        };
        ASSERT_EQ(scale(kKeyScales), k_scale[i / 32]);
        ASSERT_EQ(scale(kKeyOffsets), k_zero[i / 32]);
        ASSERT_NEAR(scale(kValueScales), v_scale[i / 32], 1e-3f * v_scale[i / 32]);
      });
      for (int row = 0; row < kHeads * kTokens; ++row) {
        const std::byte* head = block.data() + row / kTokens * g.head_bytes();
        const auto* bytes =
            reinterpret_cast<const std::byte*>(packed.data()) + row * g.value_row_bytes();
        for (int d = 0; d < dim; ++d) {
          ASSERT_EQ(value_code(g, head, kFirstSlot + row % kTokens, d),
                    read_bits(bytes, static_cast<size_t>(d), v_bits));
        }
      }
      const Decoded back = decoded(g, block);
      expect_close(back.k, golden.floats(fmt::format("k{}.decoded", k_bits)), 1e-5f);
      // One unit in the last place of a value's f16 scale is 1e-3 of it.
      expect_close(back.v, golden.floats(fmt::format("v{}.decoded", v_bits)), 2e-4f);
    }
  }
}

TEST(TurboQuant, FusedAttentionEqualsTheGoldens) {
  for (int dim : {64, 128, 256, 512}) {
    const Golden golden(fmt::format("d{}.safetensors", dim));
    auto queries = golden.floats("q");
    for (float& q : queries) q /= std::sqrt(static_cast<float>(dim));
    for (const auto& [k_bits, v_bits] : {std::pair{8, 3}, {8, 4}, {4, 3}, {2, 2}, {5, 5}}) {
      const KvGeometry g{kHeads, dim, turbo_kv(k_bits, v_bits)};
      const auto block = stored(g, golden.floats("k"), golden.floats("v"));
      for (const Kernels* kernels : available_kernels()) {
        std::vector<float> out;
        for (int h = 0; h < kHeads; ++h) {
          std::vector<float> state(kStateHeader + dim, 0.0f);
          state[0] = -std::numeric_limits<float>::infinity();
          const std::byte* blocks[] = {block.data()};
          kernels->attend({.queries = {queries.data() + h * dim},
                           .begin = {kFirstSlot},
                           .end = {kFirstSlot + kTokens},
                           .count = 1,
                           .blocks = blocks,
                           .first_block = 0,
                           .last_block = 1,
                           .geometry = g,
                           .kv_head = h,
                           .state = state.data(),
                           .state_stride = kStateHeader + dim});
          for (int d = 0; d < dim; ++d) state[kStateHeader + d] /= state[1];
          unrotate_values(dim, state.data() + kStateHeader);
          out.insert(out.end(), state.begin() + kStateHeader, state.end());
        }
        SCOPED_TRACE(fmt::format("d{} k{}v{} {}", dim, k_bits, v_bits, kernels->name));
        expect_close(out, golden.floats(fmt::format("k{}v{}.attention", k_bits, v_bits)), 2e-4f);
      }
    }
  }
}

TEST(TurboQuant, ConstantGroupsDecodeToTheConstant) {
  for (int bits : {2, 4, 5, 8}) {
    const KvGeometry g{1, 64, turbo_kv(bits, 3)};
    for (float constant : {0.0f, 1.0f, -3.25f, 1e-9f, 1000.0f, -6.1e4f, 1e30f}) {
      std::vector<float> key(64, constant), value(64, constant), k(64), v(64);
      key[40] += constant * 1e-6f;  // nearly constant: its zero would overflow
      std::vector<std::byte> block(g.block_bytes());
      store_kv(g, block.data(), 0, 7, key.data(), value.data());
      load_kv(g, block.data(), 0, 7, k.data(), v.data());
      const float wanted = std::clamp(constant, -65504.0f, 65504.0f);
      for (float x : k) ASSERT_NEAR(x, wanted, std::fabs(wanted) / 2000 + 1e-7f) << bits;
      for (float x : v) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

TEST(TurboQuant, TakesTheBytesThatItPromises) {
  const KvGeometry g{1, 128, turbo_kv(8, 3)};
  EXPECT_EQ(g.bytes_per_token(), 200U);
  EXPECT_EQ((KvGeometry{1, 128, dense_kv(true)}).bytes_per_token(), 512U);
  EXPECT_EQ((KvGeometry{1, 128, affine_kv(8, 64)}).bytes_per_token(), 272U);
}

TEST(Affine, CodesScalesAndBiasesEqualMlx) {
  const Golden golden("affine_g64.safetensors");
  for (int dim : {64, 128, 256, 512}) {
    const Golden inputs(fmt::format("d{}.safetensors", dim));
    for (int bits : {4, 8}) {
      SCOPED_TRACE(fmt::format("d{} {} bits", dim, bits));
      for (const std::string which : {"k", "v"}) {
        const std::string name = fmt::format("d{}.{}.b{}", dim, which, bits);
        const auto x = inputs.floats(which);
        const auto scales = golden.floats(name + ".scales"),
                   biases = golden.floats(name + ".biases");
        const auto packed = golden.raw<uint32_t>(name + ".packed");
        const auto bf16_packed = golden.raw<uint32_t>(name + ".bf16.packed");
        const auto bf16_scales = golden.floats(name + ".bf16.scales_as_f32");
        const auto bf16_biases = golden.floats(name + ".bf16.biases_as_f32");
        for (size_t group = 0; group * 64 < x.size(); ++group) {
          uint8_t codes[64];
          const auto same_codes = [&](const std::vector<uint32_t>& words) {
            const auto* bytes = reinterpret_cast<const std::byte*>(words.data()) + group * 8 * bits;
            for (int i = 0; i < 64; ++i) {
              ASSERT_EQ(read_bits(bytes, static_cast<size_t>(i), bits), codes[i]);
            }
          };
          AffineGroup g = affine_group(x.data() + group * 64, 64, bits);
          affine_codes(x.data() + group * 64, 64, bits, g, codes);
          same_codes(packed);
          ASSERT_EQ(g.scale, scales[group]);
          ASSERT_EQ(g.bias, biases[group]);
          std::vector<float> rounded;
          for (int i = 0; i < 64; ++i) {
            rounded.push_back(bf16_to_f32(f32_to_bf16(x[group * 64 + i])));
          }
          g = affine_group(rounded.data(), 64, bits);
          affine_codes(rounded.data(), 64, bits, g, codes);
          same_codes(bf16_packed);
          ASSERT_EQ(bf16_to_f32(f32_to_bf16(g.scale)), bf16_scales[group]);
          ASSERT_EQ(bf16_to_f32(f32_to_bf16(g.bias)), bf16_biases[group]);
        }
      }
    }
  }
}

float largest_error(const std::vector<float>& got, const std::vector<float>& wanted) {
  float error = 0;
  for (size_t i = 0; i < got.size(); ++i) error = std::max(error, std::fabs(got[i] - wanted[i]));
  return error;
}

TEST(Affine, DecodesCloseToWhatWasStored) {
  const Golden golden("affine_g64.safetensors");
  for (int dim : {64, 128, 256, 512}) {
    const Golden inputs(fmt::format("d{}.safetensors", dim));
    const auto k = inputs.floats("k"), v = inputs.floats("v");
    for (int bits : {4, 8}) {
      SCOPED_TRACE(fmt::format("d{} {} bits", dim, bits));
      const KvGeometry g{kHeads, dim, affine_kv(bits, 64)};
      const Decoded back = decoded(g, stored(g, k, v));
      // MLX's error with f32 scales, and what bf16 ones may add at the ends of a group's range.
      const float k_error =
          largest_error(golden.floats(fmt::format("d{}.k.b{}.decoded", dim, bits)), k);
      const float v_error =
          largest_error(golden.floats(fmt::format("d{}.v.b{}.decoded", dim, bits)), v);
      EXPECT_LE(largest_error(back.k, k),
                k_error + largest_error(k, std::vector<float>(k.size())) / 128);
      EXPECT_LE(largest_error(back.v, v),
                v_error + largest_error(v, std::vector<float>(v.size())) / 128);
    }
  }
}

}  // namespace
}  // namespace cohort::kernels::cpu
