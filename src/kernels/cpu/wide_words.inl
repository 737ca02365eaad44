// Products with whole numbers of 15 bits, as wide_bytes.inl, by AVX2's products of 16 bits. Part of
// a target, after lanes.
//
// Of four inputs the first and the third come first, as codes of even and of odd bytes are opened.

struct WideSum {
  static constexpr int kSums = 1;  // of sixteen lanes
  I sum;
};
inline WideSum wide_sum(int32_t start) {
  return {set1_i(start)};
}
inline I total(WideSum sum) {
  return sum.sum;
}
inline __m256i wide_dot_half(__m256i sum, __m256i codes, __m256i even, __m256i odd) {
  const __m256i of_even = _mm256_madd_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(255)), even);
  const __m256i of_odd = _mm256_madd_epi16(_mm256_srli_epi16(codes, 8), odd);
  return _mm256_add_epi32(sum, _mm256_add_epi32(of_even, of_odd));
}
/// sum + codes . the inputs 4 j to 4 j + 3 of x (exact).
inline WideSum wide_dot(WideSum sum, Codes c, const int8_t* x, int j) {
  int32_t pairs[2];
  __builtin_memcpy(pairs, x + 8 * j, 8);
  const __m256i even = _mm256_set1_epi32(pairs[0]), odd = _mm256_set1_epi32(pairs[1]);
  return {{wide_dot_half(sum.sum.a, c.a, even, odd), wide_dot_half(sum.sum.b, c.b, even, odd)}};
}
/// Stores sixteen codes from input `at` of x, 0 or 16, on.
inline void store_wide(int8_t* x, int at, I codes) {
  // Packing goes by halves of a register; the permutation puts these in order.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(codes.a, codes.b), 0xd8);
  const __m256i pairs = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(x + 2 * at), pairs);
}
