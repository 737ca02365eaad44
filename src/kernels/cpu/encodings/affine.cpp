// 4 or 8 bits per element with a bf16 scale and bias per group along the head dimension.

#include "kernels/cpu/encodings/affine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/encodings/encoding.h"

namespace cohort::kernels::cpu {

AffineGroup affine_group(const float* x, int n, int bits) {
  float low = x[0], high = x[0];
  for (int i = 1; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const auto top = static_cast<float>((1 << bits) - 1);
  const bool from_low = std::fabs(low) > std::fabs(high);
  const float edge = from_low ? low : high;
  AffineGroup group{std::max((high - low) / top, 1e-7f), 0};
  if (!from_low) group.scale = -group.scale;
  const float edge_code = std::nearbyint(edge / group.scale);
  if (edge_code != 0) {
    group.scale = edge / edge_code;
    group.bias = edge;
  }
  return group;
}

void affine_codes(const float* x, int n, int bits, const AffineGroup& group, uint8_t* codes) {
  const auto top = static_cast<float>((1 << bits) - 1);
  for (int i = 0; i < n; ++i) {
    const float code = (x[i] - group.bias) / group.scale;
    const float clamped = code < top ? (code > 0 ? code : 0) : top;
    codes[i] = static_cast<uint8_t>(round_small(clamped));
  }
}

namespace {

std::string name(const KvEncoding& encoding) {
  return fmt::format("quant:{}:{}", encoding.key_bits, encoding.group);
}

std::string refuse(const KvEncoding& encoding, int head_dim) {
  const int bits = encoding.key_bits, group = encoding.group;
  if ((bits != 4 && bits != 8) || encoding.value_bits != bits) {
    return fmt::format("{} bits; supported: 4, 8", bits);
  }
  if (group != 32 && group != 64 && group != 128) {
    return fmt::format("groups of {}; supported: 32, 64, 128", group);
  }
  if (head_dim % group != 0) {
    const char* instead = head_dim % 64 == 0   ? "; groups of 64 or 32 are"
                          : head_dim % 32 == 0 ? "; groups of 32 are"
                                               : ", nor of any other: it stays unquantized";
    return fmt::format("a head dimension of {} is no multiple of groups of {}{}", head_dim, group,
                       instead);
  }
  return "";
}

/// Scale and bias as they are stored, and the codes that are nearest with these.
AffineGroup encode_stored(const float* x, int n, int bits, uint8_t* codes) {
  AffineGroup group = affine_group(x, n, bits);
  group = {bf16_to_f32(f32_to_bf16(group.scale)), bf16_to_f32(f32_to_bf16(group.bias))};
  affine_codes(x, n, bits, group, codes);
  return group;
}

void store(const KvGeometry& g, std::byte* head, int slot, const float* key, const float* value) {
  const int size = g.encoding.group;
  uint8_t codes[128];
  for (int i = 0; i < g.groups(); ++i) {
    const AffineGroup k = encode_stored(key + i * size, size, g.encoding.key_bits, codes);
    put_key_codes(g, head, slot, i * size, codes, size);
    put_scale(scale_at(g, head, kKeyScales, i, slot), f32_to_bf16(k.scale));
    put_scale(scale_at(g, head, kKeyOffsets, i, slot), f32_to_bf16(k.bias));
    const AffineGroup v = encode_stored(value + i * size, size, g.encoding.value_bits, codes);
    put_value_codes(g, head, slot, i * size, codes, size);
    put_scale(scale_at(g, head, kValueScales, i, slot), f32_to_bf16(v.scale));
    put_scale(scale_at(g, head, kValueOffsets, i, slot), f32_to_bf16(v.bias));
  }
}

void load(const KvGeometry& g, const std::byte* head, int slot, float* key, float* value) {
  const auto scale = [&](KvScales array, int channel) {
    return bf16_to_f32(get_scale(scale_at(g, head, array, channel / g.encoding.group, slot)));
  };
  for (int d = 0; d < g.head_dim; ++d) {
    key[d] = scale(kKeyScales, d) * static_cast<float>(key_code(g, head, slot, d)) +
             scale(kKeyOffsets, d);
    value[d] = scale(kValueScales, d) * static_cast<float>(value_code(g, head, slot, d)) +
               scale(kValueOffsets, d);
  }
}

}  // namespace

const EncodingKind kAffineEncoding{name, refuse, store, load, nullptr};

}  // namespace cohort::kernels::cpu
