// Sixteen float or int32 lanes in plain C++: the portable path and the meaning of the others.
// Included inside a namespace.

struct F {
  float v[16];
};
struct I {
  int32_t v[16];
};

template <class Operation>
inline F each(Operation operation) {
  F out;
  for (int i = 0; i < 16; ++i) out.v[i] = operation(i);
  return out;
}

inline F set1(float x) {
  return each([&](int) { return x; });
}
inline F load(const float* p) {
  return each([&](int i) { return p[i]; });
}
inline void store(float* p, F a) {
  std::memcpy(p, a.v, sizeof a.v);
}
inline F fma(F a, F b, F c) {
  return each([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline F mul(F a, F b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
inline F add(F a, F b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
inline F sub(F a, F b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
inline F div(F a, F b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
// As the SSE instructions: the second operand unless the first compares true.
inline F max(F a, F b) {
  return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline F min(F a, F b) {
  return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline F round_even(F a) {
  return each([&](int i) { return std::nearbyint(a.v[i]); });
}
inline F zero_where_less(F a, F limit, F value) {  // a < limit ? 0 : value
  return each([&](int i) { return a.v[i] < limit.v[i] ? 0.0f : value.v[i]; });
}
/// value * 2^n for whole n with a normal result.
inline F scale_by_power(F value, F n) {
  return each([&](int i) {
    uint32_t bits;
    std::memcpy(&bits, &value.v[i], 4);
    // The SIMD conversion turns NaN into INT_MIN, whose shift is 0.
    const int32_t whole = n.v[i] == n.v[i] ? static_cast<int32_t>(n.v[i]) : 0;
    bits += static_cast<uint32_t>(whole) << 23;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
  });
}

/// Lane i of the first n is lane i + n, for n of 8, 4, 2 and 1.
template <int n>
inline F down(F a) {
  return each([&](int i) { return a.v[(i + n) % 16]; });
}
inline float first_lane(F a) {
  return a.v[0];
}

inline F load_bf16(const void* p) {
  const auto* bits = static_cast<const uint16_t*>(p);
  return each([&](int i) { return bf16_to_f32(bits[i]); });
}
inline F load_f16(const void* p) {
  const auto* bits = static_cast<const uint16_t*>(p);
  return each([&](int i) { return f16_to_f32(bits[i]); });
}

inline I load_signed(const std::byte* p) {  // bytes
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = static_cast<int8_t>(p[i]);
  return out;
}
inline I load_ints(const int32_t* p) {
  I out;
  __builtin_memcpy(out.v, p, sizeof(out.v));
  return out;
}
inline void store_ints(int32_t* p, I a) {
  __builtin_memcpy(p, a.v, sizeof(a.v));
}
inline I set1_i(int32_t x) {
  I out;
  for (int32_t& lane : out.v) lane = x;
  return out;
}
inline I add(I a, I b) {
  for (int i = 0; i < 16; ++i) a.v[i] += b.v[i];
  return a;
}
inline I times128(I a) {
  for (int32_t& lane : a.v) lane *= 128;
  return a;
}
/// code = 128 * high_part(code) + low, |low| <= 64
inline I high_part(I code) {
  for (int32_t& lane : code.v) lane = (lane + 64) >> 7;
  return code;
}
inline I sub(I a, I b) {
  for (int i = 0; i < 16; ++i) a.v[i] -= b.v[i];
  return a;
}
inline int32_t sum_lanes(I a) {
  int32_t sum = 0;
  for (int32_t lane : a.v) sum += lane;
  return sum;
}
inline F to_float(I a) {
  return each([&](int i) { return static_cast<float>(a.v[i]); });
}
inline I to_int(F a) {  // whole numbers
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = static_cast<int32_t>(a.v[i]);
  return out;
}
/// Sixteen bytes of lanes in [-128, 127].
inline void store_bytes(int8_t* p, I a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.v[i]);
}

/// Sixteen lanes x four consecutive inputs, unsigned 8-bit codes.
struct Codes {
  uint8_t v[64];
};
inline Codes load_codes(const uint8_t* p) {
  Codes out;
  std::memcpy(out.v, p, 64);
  return out;
}
/// Field `place` of `width` bits of each byte.
template <int width>
inline Codes field(Codes c, int place) {
  for (uint8_t& code : c.v) {
    code = static_cast<uint8_t>(code >> (width * place) & ((1 << width) - 1));
  }
  return c;
}
/// Codes of `bits` and, above them, field `place` of `width` bits of each byte of `upper`.
template <int bits, int width>
inline Codes with_upper(Codes c, Codes upper, int place) {
  upper = field<width>(upper, place);
  for (int i = 0; i < 64; ++i) c.v[i] = static_cast<uint8_t>(c.v[i] | upper.v[i] << bits);
  return c;
}
// What dot4 reads of codes of 8 bits: the codes less kDotLess.
constexpr int kDotLess = 0;
inline Codes less_for_dot(Codes c) {
  return c;
}
/// sum + codes . the signed bytes 4 j to 4 j + 3 of x (exact).
inline I dot4(I sum, Codes c, const int8_t* x, int j) {
  for (int lane = 0; lane < 16; ++lane) {
    for (int i = 0; i < 4; ++i) sum.v[lane] += c.v[lane * 4 + i] * x[4 * j + i];
  }
  return sum;
}
/// As dot4, of signed codes.
inline I dot4_signed(I sum, Codes c, const int8_t* x, int j) {
  for (int lane = 0; lane < 16; ++lane) {
    for (int i = 0; i < 4; ++i) {
      sum.v[lane] += static_cast<int8_t>(c.v[lane * 4 + i]) * x[4 * j + i];
    }
  }
  return sum;
}
inline I code_at(Codes c, int byte) {
  I out;
  for (int lane = 0; lane < 16; ++lane) out.v[lane] = c.v[lane * 4 + byte];
  return out;
}

/// The bytes of a table for codes of `bits`.
template <int bits>
inline Codes lookup_bytes(Codes c, const int8_t* table) {
  for (uint8_t& code : c.v) code = static_cast<uint8_t>(table[code]);
  return c;
}
