// The kernels compiled for AVX-512.

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
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")

namespace cohort::kernels::cpu {
namespace avx512 {
namespace {

// Rows of x and tiles that share one pass.
constexpr int kRowBlock = 8, kTileBlock = 2;
// Sums of sixteen lanes side by side: so many keep the pipes busy, no more than so many pay.
constexpr int kBusySums = 8, kMostSums = 16;
// Codes of at most so many bits become floats by a table.
constexpr int kBitsByTable = 4;

#include "kernels/cpu/lanes_avx512.inl"

#include "kernels/cpu/kernels.inl"

}  // namespace
}  // namespace avx512

const Kernels kAvx512Kernels = avx512::table("avx512");

}  // namespace cohort::kernels::cpu

#pragma GCC pop_options

#else

namespace cohort::kernels::cpu {
const Kernels kAvx512Kernels = {};
}  // namespace cohort::kernels::cpu

#endif
