// The GGUF block formats. One function and one table row each.
//   source  GGUF specification (ggml quantization types), ggml-common.h struct comments

#include <array>
#include <cstring>

#include "kernels/cpu/packed_matrix.h"

namespace cohort::kernels::cpu {
namespace {

const uint8_t* block_at(const std::byte* row, int64_t index, int bytes) {
  return reinterpret_cast<const uint8_t*>(row) + index * bytes;
}

float half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return f16_to_f32(bits);
}

/// 16 bytes of nibbles: low halves are elements 0..15, high halves 16..31.
void split_nibbles(const uint8_t* packed, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = packed[i] & 15;
    codes[i + 16] = packed[i] >> 4;
  }
}

/// Adds bit 4 of each code from a 32-bit mask.
void add_fifth_bits(const uint8_t* mask, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, mask, 4);
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((bits >> i) & 1) << 4);
}

void set_scale(DecodedGroup& out, float scale, float min) {
  out.scale[0] = out.scale[1] = scale;
  out.min = min;
}

void decode_q4_0(const std::byte* row, int64_t group, DecodedGroup& out) {
  const uint8_t* b = block_at(row, group, 18);  // d, 16 nibble bytes
  set_scale(out, half_at(b), 0);
  split_nibbles(b + 2, out.codes);
}

void decode_q4_1(const std::byte* row, int64_t group, DecodedGroup& out) {
  const uint8_t* b = block_at(row, group, 20);  // d, m, 16 nibble bytes
  set_scale(out, half_at(b), half_at(b + 2));
  split_nibbles(b + 4, out.codes);
}

void decode_q5_0(const std::byte* row, int64_t group, DecodedGroup& out) {
  const uint8_t* b = block_at(row, group, 22);  // d, 32 high bits, 16 nibble bytes
  set_scale(out, half_at(b), 0);
  split_nibbles(b + 6, out.codes);
  add_fifth_bits(b + 2, out.codes);
}

void decode_q5_1(const std::byte* row, int64_t group, DecodedGroup& out) {
  const uint8_t* b = block_at(row, group, 24);  // d, m, 32 high bits, 16 nibble bytes
  set_scale(out, half_at(b), half_at(b + 2));
  split_nibbles(b + 8, out.codes);
  add_fifth_bits(b + 4, out.codes);
}

void decode_q8_0(const std::byte* row, int64_t group, DecodedGroup& out) {
  const uint8_t* b = block_at(row, group, 34);  // d, 32 signed bytes
  set_scale(out, half_at(b), 0);
  for (int i = 0; i < 32; ++i) out.codes[i] = static_cast<uint8_t>(b[2 + i] ^ 0x80);
}

/// The 6-bit scale and min of sub-block `j` (0..7), packed in 12 bytes.
void k_scale_min(const uint8_t* packed, int j, DecodedGroup& out) {
  int s, m;
  if (j < 4) {
    s = packed[j] & 63;
    m = packed[j + 4] & 63;
  } else {
    s = (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4);
    m = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
  }
  set_scale(out, static_cast<float>(s), static_cast<float>(-m));
}

/// What follows d and dmin, whose products with scales and mins are exact in f32.
void set_factors(DecodedGroup& out, float d, float dmin) {
  out.factor = d;
  out.min_factor = dmin;
}

void decode_q4_k(const std::byte* row, int64_t group, DecodedGroup& out) {
  const uint8_t* b = block_at(row, group / 8, 144);  // d, dmin, 12 scale bytes, 128 nibble bytes
  const int j = static_cast<int>(group % 8);
  k_scale_min(b + 4, j, out);
  set_factors(out, half_at(b), half_at(b + 2));
  const uint8_t* nibbles = b + 16 + (j / 2) * 32;
  for (int i = 0; i < 32; ++i) {
    out.codes[i] = static_cast<uint8_t>(j % 2 == 0 ? nibbles[i] & 15 : nibbles[i] >> 4);
  }
}

void decode_q5_k(const std::byte* row, int64_t group, DecodedGroup& out) {
  const uint8_t* b = block_at(row, group / 8, 176);  // d, dmin, 12 scales, 32 high, 128 nibbles
  const int j = static_cast<int>(group % 8);
  k_scale_min(b + 4, j, out);
  set_factors(out, half_at(b), half_at(b + 2));
  const uint8_t* high = b + 16;
  const uint8_t* nibbles = b + 48 + (j / 2) * 32;
  for (int i = 0; i < 32; ++i) {
    const int low = j % 2 == 0 ? nibbles[i] & 15 : nibbles[i] >> 4;
    out.codes[i] = static_cast<uint8_t>(low | (((high[i] >> j) & 1) << 4));
  }
}

void decode_q6_k(const std::byte* row, int64_t group, DecodedGroup& out) {
  const uint8_t* b = block_at(row, group / 8, 210);  // 128 low, 64 high, 16 signed scales, d
  const int j = static_cast<int>(group % 8);
  const int half = j / 4, quarter = j % 4;  // 128 elements a half, 32 a quarter
  const uint8_t* low = b + half * 64 + (quarter % 2) * 32;
  const uint8_t* high = b + 128 + half * 32;
  for (int i = 0; i < 32; ++i) {
    const int nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
    out.codes[i] = static_cast<uint8_t>(nibble | (((high[i] >> (2 * quarter)) & 3) << 4));
  }
  const auto* scales = reinterpret_cast<const int8_t*>(b + 192) + half * 8 + quarter * 2;
  out.scale[0] = static_cast<float>(scales[0]);
  out.scale[1] = static_cast<float>(scales[1]);
  set_factors(out, half_at(b + 208), 0);
}

constexpr auto kF16 = NumberType::kF16;
constexpr auto kI8 = NumberType::kI8;

constexpr std::array kFormats{
    BlockFormat{"Q4_0", 32, 18, {4, kF16, false, 8, 32}, decode_q4_0},
    BlockFormat{"Q4_1", 32, 20, {4, kF16, true, 0, 32}, decode_q4_1},
    BlockFormat{"Q5_0", 32, 22, {5, kF16, false, 16, 32}, decode_q5_0},
    BlockFormat{"Q5_1", 32, 24, {5, kF16, true, 0, 32}, decode_q5_1},
    BlockFormat{"Q8_0", 32, 34, {8, kF16, false, 128, 32}, decode_q8_0},
    BlockFormat{"Q4_K", 256, 144, {4, kI8, true, 0, 32}, decode_q4_k},
    BlockFormat{"Q5_K", 256, 176, {5, kI8, true, 0, 32}, decode_q5_k},
    BlockFormat{"Q6_K", 256, 210, {6, kI8, false, 32, 16}, decode_q6_k},
};

}  // namespace

std::span<const BlockFormat> block_formats() {
  return kFormats;
}

const BlockFormat* block_format(std::string_view name) {
  for (const BlockFormat& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

}  // namespace cohort::kernels::cpu
