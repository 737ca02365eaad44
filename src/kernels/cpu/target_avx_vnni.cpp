// The kernels compiled for AVX2 with VNNI.

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
#pragma GCC target("avx2,fma,f16c,avxvnni")

namespace cohort::kernels::cpu {
namespace avx_vnni {
namespace {

// Rows of x and tiles that share one pass.
constexpr int kRowBlock = 4, kTileBlock = 1;
// Sums of sixteen lanes side by side: so many keep the pipes busy, no more than so many pay.
constexpr int kBusySums = 8, kMostSums = 16;

/// sum + unsigned codes . signed x, four at a time.
inline __m256i dot_half(__m256i sum, __m256i codes, __m256i x) {
  return _mm256_dpbusd_avx_epi32(sum, codes, x);
}
/// sum + words . words of x, two at a time.
inline __m256i word_dot_half(__m256i sum, __m256i words, __m256i x) {
  return _mm256_dpwssd_avx_epi32(sum, words, x);
}

#include "kernels/cpu/lanes_avx2.inl"

#include "kernels/cpu/wide_words.inl"

#include "kernels/cpu/kernels.inl"

}  // namespace
}  // namespace avx_vnni

const Kernels kAvxVnniKernels = avx_vnni::table("avx_vnni");

}  // namespace cohort::kernels::cpu

#pragma GCC pop_options

#else

namespace cohort::kernels::cpu {
const Kernels kAvxVnniKernels = {};
}  // namespace cohort::kernels::cpu

#endif
