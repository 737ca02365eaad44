// Sixteen float or int32 lanes on NEON. Included inside a namespace that has, before it,
//   kDotLess                      what dot_lane reads is the codes less this: 0 or 128
//   dot_lane<j>(sum, codes, x)    sum + codes . the bytes [4 j, 4 j + 4) of x, in each lane

struct F {
  float32x4_t v[4];
};
struct I {
  int32x4_t v[4];
};

template <class T, class Operation>
inline T each(Operation operation) {
  return {{operation(0), operation(1), operation(2), operation(3)}};
}

inline F set1(float x) {
  return each<F>([&](int) { return vdupq_n_f32(x); });
}
inline F load(const float* p) {
  return each<F>([&](int i) { return vld1q_f32(p + 4 * i); });
}
inline void store(float* p, F a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
inline F fma(F a, F b, F c) {
  return each<F>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
inline F mul(F a, F b) {
  return each<F>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
inline F add(F a, F b) {
  return each<F>([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
inline F sub(F a, F b) {
  return each<F>([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
inline F div(F a, F b) {
  return each<F>([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
// Not vmaxq and vminq: those return a NaN if either operand is one.
inline F max(F a, F b) {
  return each<F>([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
inline F min(F a, F b) {
  return each<F>([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
inline F round_even(F a) {
  return each<F>([&](int i) { return vrndnq_f32(a.v[i]); });
}
inline F zero_where_less(F a, F limit, F value) {  // a < limit ? 0 : value
  return each<F>([&](int i) {
    const uint32x4_t bits = vreinterpretq_u32_f32(value.v[i]);
    return vreinterpretq_f32_u32(vbicq_u32(bits, vcltq_f32(a.v[i], limit.v[i])));
  });
}
/// value * 2^n for whole n with a normal result.
inline F scale_by_power(F value, F n) {
  return each<F>([&](int i) {  // a NaN becomes 0
    const int32x4_t shifted = vshlq_n_s32(vcvtq_s32_f32(n.v[i]), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(value.v[i]), shifted));
  });
}

/// Lane i of the first n is lane i + n, for n of 8, 4, 2 and 1.
template <int n>
inline F down(F a) {
  if constexpr (n >= 4) {
    return {{a.v[n / 4], a.v[(n / 4 + 1) % 4], a.v[2], a.v[3]}};
  } else {
    return {{vextq_f32(a.v[0], a.v[0], n), a.v[1], a.v[2], a.v[3]}};
  }
}
inline float first_lane(F a) {
  return vgetq_lane_f32(a.v[0], 0);
}

inline F load_bf16(const void* p) {
  const auto* bits = static_cast<const uint16_t*>(p);
  return each<F>(
      [&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(bits + 4 * i), 16)); });
}
inline F load_f16(const void* p) {
  const auto* bits = static_cast<const uint16_t*>(p);
  return each<F>([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(bits + 4 * i))); });
}

inline I load_signed(const std::byte* p) {  // bytes
  const int8x16_t bytes = vld1q_s8(reinterpret_cast<const int8_t*>(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)),
           vmovl_s16(vget_low_s16(high)), vmovl_s16(vget_high_s16(high))}};
}
inline I set1_i(int32_t x) {
  return each<I>([&](int) { return vdupq_n_s32(x); });
}
inline I add(I a, I b) {
  return each<I>([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
}
inline I times128(I a) {
  return each<I>([&](int i) { return vshlq_n_s32(a.v[i], 7); });
}
/// code = 128 * high_part(code) + low, |low| <= 64
inline I high_part(I code) {
  return each<I>([&](int i) { return vrshrq_n_s32(code.v[i], 7); });
}
inline I sub(I a, I b) {
  return each<I>([&](int i) { return vsubq_s32(a.v[i], b.v[i]); });
}
inline int32_t sum_lanes(I a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}
inline F to_float(I a) {
  return each<F>([&](int i) { return vcvtq_f32_s32(a.v[i]); });
}
inline I to_int(F a) {  // whole numbers
  return each<I>([&](int i) { return vcvtq_s32_f32(a.v[i]); });
}
/// Sixteen bytes of lanes in [-128, 127].
inline void store_bytes(int8_t* p, I a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

/// Sixteen lanes x four consecutive inputs, unsigned 8-bit codes.
struct Codes {
  uint8x16_t v[4];
};
inline Codes load_codes(const uint8_t* p) {
  return each<Codes>([&](int i) { return vld1q_u8(p + 16 * i); });
}
/// Field `place` of `width` bits of each byte.
template <int width>
inline Codes field(Codes c, int place) {
  if constexpr (width == 8) return c;
  const int8x16_t shift = vdupq_n_s8(static_cast<int8_t>(-width * place));
  return each<Codes>(
      [&](int i) { return vandq_u8(vshlq_u8(c.v[i], shift), vdupq_n_u8((1 << width) - 1)); });
}
/// Codes of `bits` and, above them, field `place` of `width` bits of each byte of `upper`.
template <int bits, int width>
inline Codes with_upper(Codes c, Codes upper, int place) {
  const int8x16_t shift = vdupq_n_s8(static_cast<int8_t>(bits - width * place));
  constexpr uint8_t kMask = ((1 << width) - 1) << bits;
  return each<Codes>([&](int i) {
    return vorrq_u8(c.v[i], vandq_u8(vshlq_u8(upper.v[i], shift), vdupq_n_u8(kMask)));
  });
}
// What dot4 reads of codes of 8 bits: the codes less kDotLess.
inline Codes less_for_dot(Codes c) {
  return each<Codes>([&](int i) { return veorq_u8(c.v[i], vdupq_n_u8(kDotLess)); });
}
/// dot<lane>(part of sum, part of codes, sixteen bytes of x); j is known where loops are unrolled.
template <class Dot>
inline I dot4_by(I sum, Codes c, const int8_t* x, int j, Dot dot) {
  const int8x16_t sixteen = vld1q_s8(x + j / 4 * 16);
  return each<I>([&](int i) {
    switch (j % 4) {
      case 0:
        return dot.template operator()<0>(sum.v[i], c.v[i], sixteen);
      case 1:
        return dot.template operator()<1>(sum.v[i], c.v[i], sixteen);
      case 2:
        return dot.template operator()<2>(sum.v[i], c.v[i], sixteen);
      default:
        return dot.template operator()<3>(sum.v[i], c.v[i], sixteen);
    }
  });
}
/// sum + codes . the signed bytes 4 j to 4 j + 3 of x (exact).
inline I dot4(I sum, Codes c, const int8_t* x, int j) {
  return dot4_by(sum, c, x, j, []<int lane>(int32x4_t s, uint8x16_t codes, int8x16_t sixteen) {
    return dot_lane<lane>(s, codes, sixteen);
  });
}
/// As dot4, of signed codes.
inline I dot4_signed(I sum, Codes c, const int8_t* x, int j) {
  return dot4_by(sum, c, x, j, []<int lane>(int32x4_t s, uint8x16_t codes, int8x16_t sixteen) {
    return vdotq_laneq_s32(s, vreinterpretq_s8_u8(codes), sixteen, lane);
  });
}
inline I code_at(Codes c, int byte) {
  const int32x4_t shift = vdupq_n_s32(-8 * byte);
  return each<I>([&](int i) {
    const uint32x4_t moved = vshlq_u32(vreinterpretq_u32_u8(c.v[i]), shift);
    return vreinterpretq_s32_u32(vandq_u32(moved, vdupq_n_u32(255)));
  });
}

/// The bytes of a table for codes of `bits`.
template <int bits>
inline Codes lookup_bytes(Codes c, const int8_t* table) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(table);
  return each<Codes>([&](int i) {
    if constexpr (bits <= 4) return vqtbl1q_u8(vld1q_u8(bytes), c.v[i]);
    if constexpr (bits == 5) return vqtbl2q_u8(vld1q_u8_x2(bytes), c.v[i]);
    uint8x16_t found = vqtbl4q_u8(vld1q_u8_x4(bytes), c.v[i]);
    for (int part = 64; part < 1 << bits; part += 64) {
      const uint8x16_t at = vsubq_u8(c.v[i], vdupq_n_u8(static_cast<uint8_t>(part)));
      found = vqtbx4q_u8(found, vld1q_u8_x4(bytes + part), at);
    }
    return found;
  });
}
