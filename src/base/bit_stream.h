#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort {

/// Field `index` of a row of fields of `bits`, the lowest bits first, as other programs pack codes.
///   bits  1 to 8
inline uint32_t read_bits(const std::byte* row, size_t index, int bits) {
  const size_t at = index * static_cast<size_t>(bits);
  auto word = std::to_integer<uint32_t>(row[at / 8]);
  if (at % 8 + bits > 8) word |= std::to_integer<uint32_t>(row[at / 8 + 1]) << 8;
  return (word >> (at % 8)) & ((1u << bits) - 1);
}

/// Replaces that field.
///   code  below 2^bits
inline void write_bits(std::byte* row, size_t index, int bits, uint32_t code) {
  const size_t at = index * static_cast<size_t>(bits);
  const uint32_t mask = ((1u << bits) - 1) << (at % 8), value = code << (at % 8);
  const auto put = [&](size_t byte, uint32_t cleared, uint32_t set) {
    row[byte] = static_cast<std::byte>((std::to_integer<uint32_t>(row[byte]) & ~cleared) | set);
  };
  put(at / 8, mask & 255, value & 255);
  if (mask > 255) put(at / 8 + 1, mask >> 8, value >> 8);
}

}  // namespace cohort
