// The kernels in portable C++.

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

namespace cohort::kernels::cpu {
namespace scalar {
namespace {

// Rows of x and tiles that share one pass.
constexpr int kRowBlock = 4, kTileBlock = 1;

#include "kernels/cpu/lanes_scalar.inl"

#include "kernels/cpu/kernels.inl"

}  // namespace
}  // namespace scalar

const Kernels kScalarKernels = scalar::table("scalar");

}  // namespace cohort::kernels::cpu
