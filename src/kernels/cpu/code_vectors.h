#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cohort::kernels::cpu {

// Codes as integer products read them: of sixteen lanes (outputs of a matrix, tokens of keys,
// channels of values) 32 inputs each, which are summed. Vector j of eight has inputs 4 j to 4 j + 3
// of every lane, a byte each. Codes of fewer bits share bytes: their bits, from the lowest on, are
// cut into parts of 8, 4, 2 and 1 (6 = 4 + 2). A part of w bits takes w vectors, one part after the
// other, and vector j of the codes is field j / w of the bytes of its vector j % w.

constexpr int kTileRows = 16;  // lanes: the outputs of a tile of a matrix
constexpr int kGroup = 32;     // inputs, which in a matrix share an activation scale
constexpr size_t kCodeVector = 64;

constexpr size_t code_vector_bytes(int bits) {
  return kCodeVector * static_cast<size_t>(bits);
}

/// Calls use(bits) with the bits of a matrix's codes known at compile time.
///   bits  2, 3, 4, 5, 6 or 8
template <class Use>
void with_code_bits(int bits, Use use) {
  switch (bits) {
    case 2:
      return use(std::integral_constant<int, 2>{});
    case 3:
      return use(std::integral_constant<int, 3>{});
    case 4:
      return use(std::integral_constant<int, 4>{});
    case 5:
      return use(std::integral_constant<int, 5>{});
    case 6:
      return use(std::integral_constant<int, 6>{});
    default:
      return use(std::integral_constant<int, 8>{});
  }
}

/// Replaces one code; those that share its bytes stay.
///   lane, input  in [0, kTileRows), [0, kGroup)
inline void put_code(std::byte* vectors, int bits, int lane, int input, uint32_t code) {
  const int j = input / 4;
  std::byte* part = vectors + lane * 4 + input % 4;
  for (int width = 8; width > 0; width /= 2) {
    if ((bits & width) == 0) continue;
    std::byte& byte = part[j % width * kCodeVector];
    const uint32_t mask = (1u << width) - 1;
    const int shift = j / width * width;
    const uint32_t kept = std::to_integer<uint32_t>(byte) & ~(mask << shift);
    byte = static_cast<std::byte>(kept | (code & mask) << shift);
    code >>= width;
    part += code_vector_bytes(width);
  }
}

/// The code that put_code stored.
inline uint32_t get_code(const std::byte* vectors, int bits, int lane, int input) {
  const int j = input / 4;
  const std::byte* part = vectors + lane * 4 + input % 4;
  uint32_t code = 0;
  for (int width = 8, found = 0; width > 0; width /= 2) {
    if ((bits & width) == 0) continue;
    const auto byte = std::to_integer<uint32_t>(part[j % width * kCodeVector]);
    code |= (byte >> (j / width * width) & ((1u << width) - 1)) << found;
    found += width;
    part += code_vector_bytes(width);
  }
  return code;
}

}  // namespace cohort::kernels::cpu
