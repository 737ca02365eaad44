// The kernels compiled for AVX-512, and the same with AMX for products of many rows.

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
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,amx-tile,amx-int8")

namespace cohort::kernels::cpu {
namespace avx512 {
namespace {

// Rows of x and tiles that share one pass.
constexpr int kRowBlock = 8, kTileBlock = 2;
// Sums of sixteen lanes side by side: so many keep the pipes busy, no more than so many pay.
constexpr int kBusySums = 8, kMostSums = 16;

#include "kernels/cpu/lanes_avx512.inl"

#include "kernels/cpu/wide_words.inl"

#include "kernels/cpu/kernels.inl"

#include "kernels/cpu/tiles.inl"

/// The shapes of tile registers: 0 are sums, 1 and 2 rows and codes of 32 inputs, 3 and 4 of 16.
struct Shapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 32, 64, 16, 64};
  uint8_t rows[16] = {16, 16, 8, 16, 4};
};
constexpr Shapes kShapes;

/// The matrix unit of this thread.
///   source  Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBSSD and TDPBSUD
class AmxProducts {
 public:
  AmxProducts() {
    // Not _tile_loadconfig: GCC 12 believes that it reads eight bytes of them.
    asm volatile("ldtilecfg %0" : : "m"(kShapes));
  }
  ~AmxProducts() { _tile_release(); }
  AmxProducts(const AmxProducts&) = delete;
  AmxProducts& operator=(const AmxProducts&) = delete;

  template <int kInputs, bool kSigned>
  void multiply(const int8_t* x, const std::byte* codes, int32_t* sums) const {
    asm volatile("" ::: "memory");  // the compiler does not see what the loads read
    _tile_zero(0);
    if constexpr (kInputs == 32) {
      _tile_loadd(1, x, kGroup);
      _tile_loadd(2, codes, 64);
      if constexpr (kSigned) _tile_dpbssd(0, 1, 2);
      if constexpr (!kSigned) _tile_dpbsud(0, 1, 2);
    } else {
      _tile_loadd(3, x, kGroup);
      _tile_loadd(4, codes, 64);
      if constexpr (kSigned) _tile_dpbssd(0, 3, 4);
      if constexpr (!kSigned) _tile_dpbsud(0, 3, 4);
    }
    _tile_stored(0, sums, 64);
  }
};

}  // namespace
}  // namespace avx512

const Kernels kAvx512Kernels = avx512::table("avx512");
const Kernels kAmxKernels = avx512::table<avx512::ByTiles<avx512::AmxProducts>>("amx");

}  // namespace cohort::kernels::cpu

#pragma GCC pop_options

#else

namespace cohort::kernels::cpu {
const Kernels kAvx512Kernels = {};
const Kernels kAmxKernels = {};
}  // namespace cohort::kernels::cpu

#endif
