// Affine codes: element = scale * code + bias, so
//   q . key     = sum over groups of scale * (q . codes) + bias * (sum of q)
//   sum w value = sum over tokens of (w scale) * code, plus the sum of w * bias

template <int bits>
struct AffineKeys {
  static constexpr int kBits = bits, kLess = 0;
  AffineKeys(const KvHead& head, int group, int part)
      : scale(load_bf16(head.scales(kKeyScales, group) + part * 32)),
        bias(load_bf16(head.scales(kKeyOffsets, group) + part * 32)) {}
  F add_group(F dot, F query_sum, F before) const {
    return fma(scale, dot, fma(bias, query_sum, before));
  }

  F scale, bias;
};

/// weight * scale, and 0 for tokens without weight: their slots may hold anything.
inline F scale_weight(F weight, F scale) {
  return zero_where_less(weight, set1(std::numeric_limits<float>::min()), mul(weight, scale));
}

template <int bits>
struct AffineValues {
  static constexpr bool kLookup = false;
  static constexpr int kBits = bits;
  /// Fills scaled[64]; returns the sum of weight * bias.
  static float scale_weights(const KvHead& head, int group, const float* weights, float* scaled) {
    const std::byte* scales = head.scales(kValueScales, group);
    const std::byte* biases = head.scales(kValueOffsets, group);
    F offset = set1(0);
    for (int token = 0; token < kBlockTokens; token += 16) {
      const F weight = load(weights + token);
      store(scaled + token, scale_weight(weight, load_bf16(scales + token * 2)));
      offset = add(offset, scale_weight(weight, load_bf16(biases + token * 2)));
    }
    return sum_lanes(offset);
  }
};
