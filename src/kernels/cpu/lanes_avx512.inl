// Sixteen float or int32 lanes on AVX-512 (F, BW, VL, VNNI). Included inside a namespace.

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};

inline F set1(float x) {
  return {_mm512_set1_ps(x)};
}
inline F load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline void store(float* p, F a) {
  _mm512_storeu_ps(p, a.v);
}
inline F fma(F a, F b, F c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline F mul(F a, F b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline F add(F a, F b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline F sub(F a, F b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline F div(F a, F b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline F max(F a, F b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline F min(F a, F b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline F round_even(F a) {
  return {_mm512_roundscale_ps(a.v, 8)};
}
inline F zero_where_less(F a, F limit, F value) {  // a < limit ? 0 : value
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, limit.v, _CMP_NLT_UQ), value.v)};
}
/// value * 2^n for whole n with a normal result.
inline F scale_by_power(F value, F n) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value.v), shifted))};
}

/// Lane i of the first n is lane i + n, for n of 8, 4, 2 and 1.
template <int n>
inline F down(F a) {
  if constexpr (n == 8) return {_mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
  if constexpr (n == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0xb1)};
  return {_mm512_permute_ps(a.v, n == 2 ? 0x4e : 0xb1)};
}
inline float first_lane(F a) {
  return _mm512_cvtss_f32(a.v);
}

inline F load_bf16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline F load_f16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}

inline I load_signed(const std::byte* p) {  // bytes
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline I load_ints(const int32_t* p) {
  return {_mm512_loadu_si512(p)};
}
inline void store_ints(int32_t* p, I a) {
  _mm512_storeu_si512(p, a.v);
}
inline I set1_i(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline I add(I a, I b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline I times128(I a) {
  return {_mm512_slli_epi32(a.v, 7)};
}
/// code = 128 * high_part(code) + low, |low| <= 64
inline I high_part(I code) {
  return {_mm512_srai_epi32(_mm512_add_epi32(code.v, _mm512_set1_epi32(64)), 7)};
}
inline I sub(I a, I b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
inline int32_t sum_lanes(I a) {
  return _mm512_reduce_add_epi32(a.v);
}
inline F to_float(I a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
inline I to_int(F a) {  // whole numbers
  return {_mm512_cvtps_epi32(a.v)};
}
/// Sixteen bytes of lanes in [-128, 127].
inline void store_bytes(int8_t* p, I a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

/// Sixteen lanes x four consecutive inputs, unsigned 8-bit codes.
struct Codes {
  __m512i v;
};
inline Codes load_codes(const uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
/// Field `place` of `width` bits of each byte.
template <int width>
inline Codes field(Codes c, int place) {
  if constexpr (width == 8) return c;
  const __m512i moved =
      place == 0 ? c.v : _mm512_srli_epi16(c.v, static_cast<unsigned>(width * place));
  return {_mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>((1 << width) - 1)))};
}
/// Codes of `bits` and, above them, field `place` of `width` bits of each byte of `upper`.
template <int bits, int width>
inline Codes with_upper(Codes c, Codes upper, int place) {
  const int left = bits - width * place;
  const __m512i moved = left > 0 ? _mm512_slli_epi16(upper.v, static_cast<unsigned>(left))
                                 : _mm512_srli_epi16(upper.v, static_cast<unsigned>(-left));
  constexpr char kMask = ((1 << width) - 1) << bits;
  return {_mm512_or_si512(c.v, _mm512_and_si512(moved, _mm512_set1_epi8(kMask)))};
}
// What dot4 reads of codes of 8 bits: the codes less kDotLess.
constexpr int kDotLess = 0;
inline Codes less_for_dot(Codes c) {
  return c;
}
/// sum + codes . the signed bytes 4 j to 4 j + 3 of x (exact).
inline I dot4(I sum, Codes c, const int8_t* x, int j) {
  int32_t four;
  __builtin_memcpy(&four, x + 4 * j, 4);
  return {_mm512_dpbusd_epi32(sum.v, c.v, _mm512_set1_epi32(four))};
}
inline I code_at(Codes c, int byte) {
  return {
      _mm512_and_si512(_mm512_srl_epi32(c.v, _mm_cvtsi32_si128(8 * byte)), _mm512_set1_epi32(255))};
}

/// 16 bits for each of the four inputs of a lane: 0 and 2, 1 and 3.
struct Words {
  __m512i even, odd;
};
inline Words widen(Codes c) {
  return {_mm512_and_si512(c.v, _mm512_set1_epi16(255)), _mm512_srli_epi16(c.v, 8)};
}
/// The entries for the low bytes of words, codes of `bits`.
template <int bits>
inline __m512i lookup_words(__m512i codes, const int16_t* table) {
  const auto part = [&](int i) { return _mm512_loadu_si512(table + 32 * i); };
  if constexpr (bits <= 5) {
    return _mm512_permutexvar_epi16(codes, part(0));
  } else {
    const auto of_64 = [&](int i) {
      return _mm512_permutex2var_epi16(part(2 * i), codes, part(2 * i + 1));
    };
    const __mmask32 bit6 = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(64));
    const __mmask32 bit7 = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(128));
    return _mm512_mask_blend_epi16(bit7, _mm512_mask_blend_epi16(bit6, of_64(0), of_64(1)),
                                   _mm512_mask_blend_epi16(bit6, of_64(2), of_64(3)));
  }
}
template <int bits>
inline Words lookup(Codes c, const EntryTable& table) {
  return {lookup_words<bits>(c.v, table.entries),
          lookup_words<bits>(_mm512_srli_epi16(c.v, 8), table.entries)};
}
/// sum + words . the inputs 4 j to 4 j + 3 of x, as store_wide left them (exact).
inline I dot_words(I sum, Words w, const int8_t* x, int j) {
  int32_t even, odd;  // one by one: both at once would go through another register
  __builtin_memcpy(&even, x + 8 * j, 4);
  __builtin_memcpy(&odd, x + 8 * j + 4, 4);
  const __m512i with_even = _mm512_dpwssd_epi32(sum.v, w.even, _mm512_set1_epi32(even));
  return {_mm512_dpwssd_epi32(with_even, w.odd, _mm512_set1_epi32(odd))};
}
/// Stores sixteen codes from input `at` of x, 0 or 16, on: of four the first and the third first.
inline void store_wide(int8_t* x, int at, I codes) {
  const __m256i words = _mm512_cvtepi32_epi16(codes.v);
  const __m256i pairs = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(x + 2 * at), pairs);
}
