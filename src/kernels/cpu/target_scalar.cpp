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

constexpr int kRowBlock = 4;  // rows of x that share one pass over a tile

#include "kernels/cpu/lanes_scalar.inl"

#include "kernels/cpu/kernels.inl"

}  // namespace
}  // namespace scalar

const Kernels kScalarKernels = scalar::table("scalar");

}  // namespace cohort::kernels::cpu
