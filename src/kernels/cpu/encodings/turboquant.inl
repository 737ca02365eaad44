// TurboQuant: key = (code + zero) * scale; rotated value = centroid[code] * scale.

template <int bits>
struct TurboKeyCodes {
  static constexpr bool kCoded = true;
  static constexpr int kBits = bits;
  static F read(const KvHead& head, int stream) {
    return code_floats<bits>(head.data + static_cast<ptrdiff_t>(stream) * 2 * bits);
  }
  TurboKeyCodes(const KvHead& head, int group, int part)
      : scale(load_f16(head.scales(kKeyScales, group) + part * 32)),
        zero(load_f16(head.scales(kKeyOffsets, group) + part * 32)) {
    if constexpr (bits == 8) zero = sub(zero, set1(128));  // codes of 8 bits are stored plus 128
  }
  F add_group(F dot, F query_sum, F before) const {
    return fma(scale, fma(zero, query_sum, dot), before);
  }

  F scale, zero;
};

template <int bits>
struct TurboValues {
  explicit TurboValues(const KvHead&) : centroids(turbo_centroids(bits)) {}
  static constexpr bool kCoded = true;
  static constexpr int kBits = bits;
  F read(const std::byte* row, int part) const {
    return lookup<bits>(row + static_cast<ptrdiff_t>(part) * 2 * bits, centroids);
  }
  static float scale_weights(const KvHead& head, int group, const float* weights, float* scaled) {
    const std::byte* scales = head.scales(kValueScales, group);
    for (int token = 0; token < kBlockTokens; token += 16) {
      store(scaled + token, scale_weight(load(weights + token), load_f16(scales + token * 2)));
    }
    return 0;
  }

  const float* centroids;
};
