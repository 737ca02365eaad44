// Keys and values as they are: f32, or bf16 rounded to nearest even.

#include "kernels/cpu/encodings/encoding.h"

namespace cohort::kernels::cpu {
namespace {

std::string name(const KvEncoding& encoding) {
  return encoding.key_bits == 16 ? "plain:bf16" : "plain:f32";
}

std::string refuse(const KvEncoding& encoding, int) {
  const bool known = encoding.key_bits == 16 || encoding.key_bits == 32;
  if (known && encoding.value_bits == encoding.key_bits && encoding.group == 0) return "";
  return "dense keys and values are bf16 or f32";
}

template <class E>
E* as(std::byte* at) {
  return reinterpret_cast<E*>(at);
}

void store(const KvGeometry& g, std::byte* head, int slot, const float* key, const float* value) {
  const auto write = [&](auto zero, auto convert) {
    using E = decltype(zero);
    E* keys = as<E>(dense_keys(g, head, slot, 0)) + slot % 16;
    E* values = as<E>(value_row(g, head, slot));
    for (int d = 0; d < g.head_dim; ++d) keys[d * 16] = convert(key[d]);
    for (int d = 0; d < g.head_dim; ++d) values[d] = convert(value[d]);
    for (int d = g.head_dim; d < g.value_stride(); ++d) values[d] = 0;
  };
  if (g.encoding.key_bits == 16) {
    write(uint16_t{}, f32_to_bf16);
  } else {
    write(float{}, [](float v) { return v; });
  }
}

void load(const KvGeometry& g, const std::byte* head, int slot, float* key, float* value) {
  const auto element = g.encoding.key_bits == 16 ? NumberType::kBF16 : NumberType::kF32;
  for (int d = 0; d < g.head_dim; ++d) {
    key[d] = load_float(element, dense_keys(g, head, slot, d), slot % 16);
    value[d] = load_float(element, value_row(g, head, slot), d);
  }
}

}  // namespace

const EncodingKind kDenseEncoding{name, refuse, store, load, nullptr};

}  // namespace cohort::kernels::cpu
