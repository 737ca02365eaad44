// TurboQuant: key = (code + zero) * scale; rotated value = centroid[code] * scale.

template <int bits>
struct TurboKeyCodes {
  static constexpr int kBits = bits;
  static constexpr int kLess = bits == 8 ? 128 : 0;  // codes of 8 bits are stored plus 128
  TurboKeyCodes(const KvHead& head, int group, int part)
      : scale(load_f16(head.scales(kKeyScales, group) + part * 32)),
        zero(load_f16(head.scales(kKeyOffsets, group) + part * 32)) {}
  F add_group(F dot, F query_sum, F before) const {
    return fma(scale, fma(zero, query_sum, dot), before);
  }

  F scale, zero;
};

template <int bits>
struct TurboValues {
  static constexpr int kBits = bits;
  static constexpr bool kLookup = true;
  static const EntryTable& table() { return turbo_entries(bits); }
  static float scale_weights(const KvHead& head, int group, const float* weights, float* scaled) {
    const std::byte* scales = head.scales(kValueScales, group);
    for (int token = 0; token < kBlockTokens; token += 16) {
      store(scaled + token, scale_weight(load(weights + token), load_f16(scales + token * 2)));
    }
    return 0;
  }
};
