// The kernels in portable C++.

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

namespace cohort::kernels::cpu {
namespace scalar {
namespace {

// As the other sets say it: nothing side by side, which is as fast here and much less code.
constexpr int kRowBlock = 1, kTileBlock = 1;
constexpr int kBusySums = 1, kMostSums = 1;

#include "kernels/cpu/lanes_scalar.inl"

#include "kernels/cpu/wide_bytes.inl"

#include "kernels/cpu/kernels.inl"

}  // namespace
}  // namespace scalar

const Kernels kScalarKernels = scalar::table("scalar");

}  // namespace cohort::kernels::cpu
