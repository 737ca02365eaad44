// The kernels of a matrix unit on machines that have none: the unit in plain C++.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/cpu/encodings/turboquant.h"
#include "kernels/cpu/matmul.h"
#include "tests/kernels_cpu/sample_matrices.h"
#include "tests/support/random_data.h"

namespace cohort::kernels::cpu {
namespace {
namespace by_tiles {

constexpr int kRowBlock = 1, kTileBlock = 1;
constexpr int kBusySums = 1, kMostSums = 1;

#include "kernels/cpu/lanes_scalar.inl"

#include "kernels/cpu/wide_bytes.inl"

#include "kernels/cpu/kernels.inl"

#include "kernels/cpu/tiles.inl"

struct PlainProducts {
  template <int kInputs, bool kSigned>
  void multiply(const int8_t* x, const std::byte* codes, int32_t* sums) const {
    for (int r = 0; r < 16; ++r) {
      for (int output = 0; output < 16; ++output) {
        int32_t& sum = sums[r * 16 + output] = 0;
        for (int k = 0; k < kInputs; ++k) {
          const auto code = static_cast<uint8_t>(codes[k / 4 * 64 + output * 4 + k % 4]);
          sum += x[r * kGroup + k] * (kSigned ? static_cast<int8_t>(code) : int{code});
        }
      }
    }
  }
};

}  // namespace by_tiles

TEST(Tiles, GiveTheBitsOfTheLanes) {
  constexpr Kernels kTiles = by_tiles::table<by_tiles::ByTiles<by_tiles::PlainProducts>>("tiles");
  Cpu lanes(1, kScalarKernels), tiles(1, kTiles);
  WeightArena arena;
  const int outputs = 40;
  // One group, fewer and more than are on their way, more than are opened at once. Fewer rows read
  // what more have left behind; from 10 on the unit multiplies, from 32 on what was opened before.
  for (const int cols : {16, 64, 96, 160, 17 * 32 + 16}) {
    const std::vector<Sample> all = samples(arena, lanes.pool(), outputs, cols);
    for (const int rows : {130, 37, 32, 31, 25, 16, 10, 9}) {
      auto x = test::random_floats(static_cast<size_t>(rows) * cols, 41);
      for (int r = 0; r < rows; r += 3) x[r * cols + r % 11 * 48 % cols] = 90;  // stand out
      for (const Sample& sample : all) {
        std::vector<float> want(static_cast<size_t>(rows) * outputs), out(want.size());
        const MatmulStep step{.matrices = {&sample.matrix}};
        for (int r = 0; r < rows; ++r) {  // of one row no tiles are opened
          matmul(lanes, step, x.data() + r * cols, nullptr, 1, want.data() + r * outputs);
        }
        matmul(tiles, step, x.data(), nullptr, rows, out.data());
        ASSERT_EQ(std::memcmp(out.data(), want.data(), want.size() * sizeof(float)), 0)
            << sample.name << ' ' << rows << " rows of " << cols;
      }
    }
  }
}

}  // namespace
}  // namespace cohort::kernels::cpu
