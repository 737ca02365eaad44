// The kernels compiled for NEON with dot products.

#if defined(__aarch64__)
#include <arm_neon.h>
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

#if defined(COHORT_ARM_KERNELS)

// After the standard headers: only the code below may use these instructions.
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#pragma GCC optimize("no-schedule-insns")  // else the sums of int_block leave the registers

namespace cohort::kernels::cpu {
namespace neon {
namespace {

// Rows of x and tiles that share one pass.
constexpr int kRowBlock = 4, kTileBlock = 1;
// Sums of sixteen lanes side by side: so many keep the pipes busy, no more than so many pay.
constexpr int kBusySums = 2, kMostSums = 4;

// This dot product is of signed codes: those of 8 bits come less 128.
constexpr int kDotLess = 128;
template <int lane>
inline int32x4_t dot_lane(int32x4_t sum, uint8x16_t codes, int8x16_t x) {
  return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(codes), x, lane);
}

#include "kernels/cpu/lanes_neon.inl"

#include "kernels/cpu/wide_bytes.inl"

#include "kernels/cpu/kernels.inl"

}  // namespace
}  // namespace neon

const Kernels kNeonKernels = neon::table("neon");

}  // namespace cohort::kernels::cpu

#pragma GCC pop_options

#else

namespace cohort::kernels::cpu {
const Kernels kNeonKernels = {};
}  // namespace cohort::kernels::cpu

#endif
