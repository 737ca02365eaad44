#pragma once

#include <cstdint>

namespace cohort::kernels::cpu {

// TurboQuant: keys affine per group of 32; values rotated (random signs, then a Hadamard
// transform), scaled by their RMS per group of 32 and mapped to the nearest centroid of a Gaussian
// quantizer.
//   source  Zandieh et al., "TurboQuant: Online Vector Quantization"; the constants, roundings and
//           bit order are those of vllm-metal's codec

constexpr int kTurboGroup = 32;

/// y = H (signs * x) / sqrt(dim) in place; dim is 64, 128, 256 or 512.
void rotate_values(int dim, float* x);
/// Undoes rotate_values.
void unrotate_values(int dim, float* x);

/// The 2^bits centroids.
const float* turbo_centroids(int bits);

/// The centroids as attention multiplies them: entries times `scale`, repeated up to 32. An entry
/// is also 128 * high + low, |low| <= 64.
struct EntryTable {
  float scale;
  int16_t entries[256];
  int8_t high[256], low[256];
};
constexpr int kMostEntry = 8192;
const EntryTable& turbo_entries(int bits);

/// A group of keys: key ~ (code + zero) * scale, both f16. Codes of 8 bits are stored plus 128.
/// A group whose f16 scale would be 0 or whose zero would overflow, that is a (nearly) constant
/// one, is stored as that constant: every code 0, zero 1 and the scale its middle.
struct TurboKeys {
  uint16_t scale, zero;
};
TurboKeys encode_turbo_keys(const float* x, int bits, uint8_t* codes);
/// A group of rotated values.
///   returns  the f16 scale: value ~ centroid[code] * scale
uint16_t encode_turbo_values(const float* x, int bits, uint8_t* codes);

}  // namespace cohort::kernels::cpu
