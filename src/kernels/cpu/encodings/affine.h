#pragma once

#include <cstdint>

namespace cohort::kernels::cpu {

struct AffineGroup {
  float scale, bias;
};

/// How n values are quantized: x ~ scale * code + bias, codes in [0, 2^bits). The scale has the
/// sign that makes the value of largest magnitude a whole code.
///   source  mx.quantize of MLX, mode "affine": equal scales and biases, and with them equal codes
AffineGroup affine_group(const float* x, int n, int bits);
/// The nearest codes with this scale and bias.
void affine_codes(const float* x, int n, int bits, const AffineGroup& group, uint8_t* codes);

}  // namespace cohort::kernels::cpu
