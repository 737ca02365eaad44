// Sixteen float or int32 lanes on AVX2 + FMA + F16C. Included inside a namespace.

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};

inline F set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline F load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline F fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline F mul(F x, F y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline F add(F x, F y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline F sub(F x, F y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
inline F div(F x, F y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
inline F max(F x, F y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
inline F min(F x, F y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
inline F round_even(F x) {
  return {_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)};
}
inline F zero_where_less(F x, F limit, F value) {  // x < limit ? 0 : value
  return {_mm256_and_ps(_mm256_cmp_ps(x.a, limit.a, _CMP_NLT_UQ), value.a),
          _mm256_and_ps(_mm256_cmp_ps(x.b, limit.b, _CMP_NLT_UQ), value.b)};
}
inline __m256 scale_half(__m256 value, __m256 n) {
  const __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), shifted));
}
/// value * 2^n for whole n with a normal result.
inline F scale_by_power(F value, F n) {
  return {scale_half(value.a, n.a), scale_half(value.b, n.b)};
}

/// Lane i of the first n is lane i + n, for n of 8, 4, 2 and 1.
template <int n>
inline F down(F x) {
  if constexpr (n == 8) return {x.b, x.a};
  if constexpr (n == 4) return {_mm256_permute2f128_ps(x.a, x.a, 1), x.b};
  return {_mm256_permute_ps(x.a, n == 2 ? 0x4e : 0xb1), x.b};
}
inline float first_lane(F x) {
  return _mm256_cvtss_f32(x.a);
}

inline __m256 widen_bf16(const void* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline F load_bf16(const void* p) {
  return {widen_bf16(p), widen_bf16(static_cast<const uint16_t*>(p) + 8)};
}
inline F load_f16(const void* p) {
  const auto* halves = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}

inline I load_signed(const std::byte* p) {  // bytes
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
inline I set1_i(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
inline I add(I x, I y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
inline I times128(I x) {
  return {_mm256_slli_epi32(x.a, 7), _mm256_slli_epi32(x.b, 7)};
}
/// code = 128 * high_part(code) + low, |low| <= 64
inline I high_part(I code) {
  const I up = add(code, set1_i(64));
  return {_mm256_srai_epi32(up.a, 7), _mm256_srai_epi32(up.b, 7)};
}
inline I sub(I x, I y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
inline int32_t sum_lanes(I x) {
  int32_t lanes[8], sum = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(x.a, x.b));
  for (int32_t lane : lanes) sum += lane;
  return sum;
}
inline F to_float(I x) {
  return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
inline I to_int(F x) {  // whole numbers
  return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}
/// Sixteen bytes of lanes in [-128, 127].
inline void store_bytes(int8_t* p, I x) {
  // Packing goes by halves of a register; the permutation puts these in order.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

/// Sixteen lanes x four consecutive inputs, unsigned 8-bit codes.
struct Codes {
  __m256i a, b;
};
inline Codes load_codes(const uint8_t* p) {
  const auto* halves = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
/// Field `place` of `width` bits of each byte.
template <int width>
inline Codes field(Codes c, int place) {
  if constexpr (width == 8) return c;
  const __m256i mask = _mm256_set1_epi8(static_cast<char>((1 << width) - 1));
  return {_mm256_and_si256(_mm256_srli_epi16(c.a, width * place), mask),
          _mm256_and_si256(_mm256_srli_epi16(c.b, width * place), mask)};
}
template <int bits, int width>
inline __m256i with_upper_half(__m256i c, __m256i upper, int place) {
  const int left = bits - width * place;
  const __m256i moved = left > 0 ? _mm256_slli_epi16(upper, left) : _mm256_srli_epi16(upper, -left);
  constexpr char kMask = ((1 << width) - 1) << bits;
  return _mm256_or_si256(c, _mm256_and_si256(moved, _mm256_set1_epi8(kMask)));
}
/// Codes of `bits` and, above them, field `place` of `width` bits of each byte of `upper`.
template <int bits, int width>
inline Codes with_upper(Codes c, Codes upper, int place) {
  return {with_upper_half<bits, width>(c.a, upper.a, place),
          with_upper_half<bits, width>(c.b, upper.b, place)};
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
  const __m256i fours = _mm256_set1_epi32(four);
  return {dot_half(sum.a, c.a, fours), dot_half(sum.b, c.b, fours)};
}
inline I code_at(Codes c, int byte) {
  const __m128i shift = _mm_cvtsi32_si128(8 * byte);
  const __m256i mask = _mm256_set1_epi32(255);
  return {_mm256_and_si256(_mm256_srl_epi32(c.a, shift), mask),
          _mm256_and_si256(_mm256_srl_epi32(c.b, shift), mask)};
}

/// 16 bits for each of the four inputs of a lane: 0 and 2, 1 and 3.
struct Words {
  Codes even, odd;
};
inline Codes even_bytes(Codes c) {
  const __m256i mask = _mm256_set1_epi16(255);
  return {_mm256_and_si256(c.a, mask), _mm256_and_si256(c.b, mask)};
}
inline Codes odd_bytes(Codes c) {
  return {_mm256_srli_epi16(c.a, 8), _mm256_srli_epi16(c.b, 8)};
}
inline Words widen(Codes c) {
  return {even_bytes(c), odd_bytes(c)};
}

/// The bytes of a table for codes of up to 5 bits.
template <int bits>
inline __m256i lookup_bytes(__m256i codes, const int8_t* table) {
  const auto of_16 = [&](int i) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table) + i);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(part), codes);
  };
  if constexpr (bits <= 4) return of_16(0);
  return _mm256_blendv_epi8(of_16(0), of_16(1), _mm256_slli_epi16(codes, 3));
}
/// The entries for words below 256, more than a shuffle finds. With the last entry two bytes behind
/// it are read, and dropped: the table goes on there.
inline __m256i gather_words(__m256i codes, const int16_t* table) {
  const auto* base = reinterpret_cast<const int*>(table);
  const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi32(255));
  const __m256i high = _mm256_srli_epi32(codes, 16);
  return _mm256_blend_epi16(_mm256_i32gather_epi32(base, low, 2),
                            _mm256_slli_epi32(_mm256_i32gather_epi32(base, high, 2), 16), 0xaa);
}
template <int bits>
inline void lookup_half(__m256i codes, const EntryTable& table, __m256i& even, __m256i& odd) {
  if constexpr (bits <= 5) {
    const __m256i high = lookup_bytes<bits>(codes, table.high);
    const __m256i low = lookup_bytes<bits>(codes, table.low);
    even = _mm256_add_epi16(_mm256_srai_epi16(_mm256_slli_epi16(high, 8), 1),
                            _mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8));
    odd = _mm256_add_epi16(_mm256_slli_epi16(_mm256_srai_epi16(high, 8), 7),
                           _mm256_srai_epi16(low, 8));
  } else {
    even = gather_words(_mm256_and_si256(codes, _mm256_set1_epi16(255)), table.entries);
    odd = gather_words(_mm256_srli_epi16(codes, 8), table.entries);
  }
}
template <int bits>
inline Words lookup(Codes c, const EntryTable& table) {
  Words words;
  lookup_half<bits>(c.a, table, words.even.a, words.odd.a);
  lookup_half<bits>(c.b, table, words.even.b, words.odd.b);
  return words;
}
/// sum + words . the inputs 4 j to 4 j + 3 of x, as store_wide left them (exact).
inline I dot_words(I sum, Words w, const int8_t* x, int j) {
  int32_t pair[2];  // one by one: both at once would go through another register
  __builtin_memcpy(&pair[0], x + 8 * j, 4);
  __builtin_memcpy(&pair[1], x + 8 * j + 4, 4);
  const __m256i even = _mm256_set1_epi32(pair[0]), odd = _mm256_set1_epi32(pair[1]);
  return {word_dot_half(word_dot_half(sum.a, w.even.a, even), w.odd.a, odd),
          word_dot_half(word_dot_half(sum.b, w.even.b, even), w.odd.b, odd)};
}
/// Stores sixteen codes from input `at` of x, 0 or 16, on: of four the first and the third first.
inline void store_wide(int8_t* x, int at, I codes) {
  // Packing goes by halves of a register; the permutation puts these in order.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(codes.a, codes.b), 0xd8);
  const __m256i pairs = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(x + 2 * at), pairs);
}
