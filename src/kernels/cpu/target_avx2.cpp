// The kernels compiled for AVX2.

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/cpu/encodings/turboquant.h"
#include "kernels/cpu/kernels.h"

#if defined(COHORT_X86_KERNELS)

// After the standard headers: only the code below may use these instructions.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace cohort::kernels::cpu {
namespace avx2 {
namespace {

// Rows of x and tiles that share one pass.
constexpr int kRowBlock = 4, kTileBlock = 1;
// Sums of sixteen lanes side by side: so many keep the pipes busy, no more than so many pay.
constexpr int kBusySums = 8, kMostSums = 16;

/// sum + unsigned codes . signed x, four at a time. Even and odd bytes apart, in 16 bits: maddubs
/// would saturate for codes above 127.
inline __m256i dot_half(__m256i sum, __m256i codes, __m256i x) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(codes, 8), _mm256_srai_epi16(x, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
/// sum + words . words of x, two at a time.
inline __m256i word_dot_half(__m256i sum, __m256i words, __m256i x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(words, x));
}

#include "kernels/cpu/lanes_avx2.inl"

#include "kernels/cpu/wide_words.inl"

#include "kernels/cpu/kernels.inl"

}  // namespace
}  // namespace avx2

const Kernels kAvx2Kernels = avx2::table("avx2");

}  // namespace cohort::kernels::cpu

#pragma GCC pop_options

#else

namespace cohort::kernels::cpu {
const Kernels kAvx2Kernels = {};
}  // namespace cohort::kernels::cpu

#endif
