#pragma once

#include <cstdint>

namespace cohort::kernels::cpu {

struct AffineGroup {
  float scale, bias;
};

/// Quantizes n values: x ~ scale * code + bias, codes in [0, 2^bits). The scale has the sign that
/// makes the value of largest magnitude a whole code.
///   source  mx.quantize of MLX, mode "affine": equal codes, scales and biases
AffineGroup encode_affine(const float* x, int n, int bits, uint8_t* codes);

/// The nearest codes with a given scale and bias.
void affine_codes(const float* x, int n, int bits, const AffineGroup& group, uint8_t* codes);

}  // namespace cohort::kernels::cpu
