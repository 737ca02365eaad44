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

// As the other sets say it: nothing side by side, which is as fast here and much less code.
constexpr int kRowBlock = 1, kTileBlock = 1;
constexpr int kBusySums = 1, kMostSums = 1;
// Codes of at most so many bits become floats by a table.
constexpr int kBitsByTable = 0;

#include "kernels/cpu/lanes_scalar.inl"

#include "kernels/cpu/kernels.inl"

}  // namespace
}  // namespace scalar

const Kernels kScalarKernels = scalar::table("scalar");

}  // namespace cohort::kernels::cpu
