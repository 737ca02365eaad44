#include "kernels/cpu/encodings/turboquant.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/encodings/encoding.h"

namespace cohort::kernels::cpu {
namespace {

#include "kernels/cpu/encodings/turboquant_tables.inl"

constexpr float kMostF16 = 65504.0f;
constexpr float kTiny = 1e-8f;  // keeps the division by a scale of zero defined

struct Codebook {
  const float* centroids = nullptr;
  std::array<float, 255> boundaries{};  // between neighbours
  EntryTable table{};
};

template <size_t N>
constexpr EntryTable entry_table(const float (&centroids)[N]) {
  EntryTable table{};
  for (const float c : centroids) table.scale = std::max({table.scale, c, -c});
  table.scale /= kMostEntry;
  for (size_t i = 0; i < std::max<size_t>(N, 32); ++i) {
    const float entry = centroids[i % N] / table.scale;
    table.entries[i] = static_cast<int16_t>(entry + (entry < 0 ? -0.5f : 0.5f));
    table.high[i] = static_cast<int8_t>((table.entries[i] + 64) >> 7);
    table.low[i] = static_cast<int8_t>(table.entries[i] - 128 * table.high[i]);
  }
  return table;
}

template <size_t N>
constexpr Codebook codebook(const float (&centroids)[N]) {
  Codebook book{centroids, {}, entry_table(centroids)};
  for (size_t i = 0; i + 1 < N; ++i) book.boundaries[i] = (centroids[i] + centroids[i + 1]) / 2;
  return book;
}

const Codebook& codebook_of(int bits) {
  static constexpr Codebook k2 = codebook(kCentroids2), k4 = codebook(kCentroids4),
                            k5 = codebook(kCentroids5), k8 = codebook(kCentroids8);
  static constexpr Codebook k3 = [] {
    Codebook book = codebook(kCentroids3);
    for (size_t i = 0; i < 7; ++i) book.boundaries[i] = kBoundaries3[i];
    return book;
  }();
  return bits == 2 ? k2 : bits == 3 ? k3 : bits == 4 ? k4 : bits == 5 ? k5 : k8;
}

const uint64_t* negative_channels(int dim) {
  return dim == 64    ? kNegative64
         : dim == 128 ? kNegative128
         : dim == 256 ? kNegative256
                      : kNegative512;
}

void flip_signs(int dim, float* x) {
  const uint64_t* negative = negative_channels(dim);
  for (int i = 0; i < dim; ++i) {
    const auto sign = static_cast<uint32_t>(negative[i / 64] >> (i % 64)) << 31;
    x[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) ^ sign);
  }
}

/// The Walsh-Hadamard transform in natural order, divided by sqrt(dim).
void hadamard(int dim, float* x) {
  for (int half = 1; half < dim; half *= 2) {
    for (int i = 0; i < dim; i += 2 * half) {
      for (int j = i; j < i + half; ++j) {
        const float a = x[j], b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  for (int i = 0; i < dim; ++i) x[i] *= scale;
}

bool finite_f16(uint16_t bits) {
  return (bits & 0x7c00) != 0x7c00;
}

}  // namespace

void rotate_values(int dim, float* x) {
  flip_signs(dim, x);
  hadamard(dim, x);
}

void unrotate_values(int dim, float* x) {
  hadamard(dim, x);
  flip_signs(dim, x);
}

const float* turbo_centroids(int bits) {
  return codebook_of(bits).centroids;
}

const EntryTable& turbo_entries(int bits) {
  return codebook_of(bits).table;
}

TurboKeys encode_turbo_keys(const float* x, int bits, uint8_t* codes) {
  float low = x[0], high = x[0];
  for (int i = 1; i < kTurboGroup; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  // 8 bits are signed around the middle, fewer unsigned from the bottom.
  const bool is_signed = bits == 8;
  const float top = is_signed ? 127.0f : static_cast<float>((1 << bits) - 1);
  const float bottom = is_signed ? -127.0f : 0.0f;
  const float scale = (high - low) / (top - bottom);
  const float step = scale + kTiny;
  const float zero = std::nearbyint(is_signed ? (high + low) / (2 * step) : low / step);
  TurboKeys group{f32_to_f16(std::min(scale, kMostF16)), f32_to_f16(zero)};
  const bool empty = low == 0 && high == 0;
  if (!empty && ((group.scale & 0x7fff) == 0 || !finite_f16(group.zero))) {
    const float middle = low + (high - low) / 2;
    group = {f32_to_f16(std::clamp(middle, -kMostF16, kMostF16)), f32_to_f16(1)};
    std::fill_n(codes, kTurboGroup, static_cast<uint8_t>(is_signed ? 128 : 0));
    return group;
  }
  for (int i = 0; i < kTurboGroup; ++i) {
    const float code = x[i] / step - zero;
    const float clamped = code < top ? (code > bottom ? code : bottom) : top;
    codes[i] = static_cast<uint8_t>(static_cast<int>(round_small(clamped)) + (is_signed ? 128 : 0));
  }
  return group;
}

uint16_t encode_turbo_values(const float* x, int bits, uint8_t* codes) {
  float squares = 0;
  for (int i = 0; i < kTurboGroup; ++i) squares += x[i] * x[i];
  const float scale = std::sqrt(squares / kTurboGroup);
  const float* boundaries = codebook_of(bits).boundaries.data();
  for (int i = 0; i < kTurboGroup; ++i) {
    const float value = x[i] / (scale + kTiny);
    int code = 0;  // of the boundaries, how many are below the value
    for (int step = 1 << (bits - 1); step > 0; step /= 2) {
      code += boundaries[code + step - 1] < value ? step : 0;
    }
    codes[i] = static_cast<uint8_t>(code);
  }
  return f32_to_f16(std::min(scale, kMostF16));
}

namespace {

std::string name(const KvEncoding& encoding) {
  return fmt::format("turboquant:{}:{}", encoding.key_bits, encoding.value_bits);
}

std::string refuse(const KvEncoding& encoding, int head_dim) {
  const int k = encoding.key_bits, v = encoding.value_bits;
  if (k != 2 && k != 4 && k != 5 && k != 8) {
    return fmt::format("{} bits for keys; supported: 2, 4, 5, 8", k);
  }
  if (v != 2 && v != 3 && v != 4 && v != 5 && v != 8) {
    return fmt::format("{} bits for values; supported: 2, 3, 4, 5, 8", v);
  }
  if (encoding.group != kTurboGroup) return "groups are of 32";
  if (head_dim != 64 && head_dim != 128 && head_dim != 256 && head_dim != 512) {
    return fmt::format("a head dimension of {}; supported: 64, 128, 256, 512", head_dim);
  }
  return "";
}

void store(const KvGeometry& g, std::byte* head, int slot, const float* key, const float* value) {
  uint8_t codes[kTurboGroup];
  float rotated[512];
  std::copy_n(value, g.head_dim, rotated);
  rotate_values(g.head_dim, rotated);
  for (int i = 0; i < g.groups(); ++i) {
    const int channel = i * kTurboGroup;
    const TurboKeys keys = encode_turbo_keys(key + channel, g.encoding.key_bits, codes);
    put_key_codes(g, head, slot, channel, codes, kTurboGroup);
    put_scale(scale_at(g, head, kKeyScales, i, slot), keys.scale);
    put_scale(scale_at(g, head, kKeyOffsets, i, slot), keys.zero);
    const uint16_t scale = encode_turbo_values(rotated + channel, g.encoding.value_bits, codes);
    put_value_codes(g, head, slot, channel, codes, kTurboGroup);
    put_scale(scale_at(g, head, kValueScales, i, slot), scale);
  }
}

void load(const KvGeometry& g, const std::byte* head, int slot, float* key, float* value) {
  const float* centroids = turbo_centroids(g.encoding.value_bits);
  const float offset = g.encoding.key_bits == 8 ? -128.0f : 0.0f;
  const auto scale = [&](KvScales array, int channel) {
    return f16_to_f32(get_scale(scale_at(g, head, array, channel / kTurboGroup, slot)));
  };
  for (int d = 0; d < g.head_dim; ++d) {
    const float code = static_cast<float>(key_code(g, head, slot, d)) + offset;
    key[d] = (code + scale(kKeyOffsets, d)) * scale(kKeyScales, d);
    value[d] = centroids[value_code(g, head, slot, d)] * scale(kValueScales, d);
  }
  unrotate_values(g.head_dim, value);
}

}  // namespace

const EncodingKind kTurboEncoding{name, refuse, store, load, unrotate_values};

}  // namespace cohort::kernels::cpu
