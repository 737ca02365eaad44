// The kernels compiled for AVX2.

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
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
// Codes of at most so many bits become floats by a table.
constexpr int kBitsByTable = 0;

#include "kernels/cpu/lanes_avx2.inl"

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
