// How fast kernels::cpu::matmul alone is, on the shapes of a model with a billion weights:
//   build/release/bench/matmul [THREADS [FORMAT ...]]     (default: one per core, Q4_0 Q4_1 Q8_0)
// Prints a line of JSON with the peaks of the machine, then one per shape, format, share of groups
// that stand out and number of rows: GB/s of weights, int8 GOP/s (2 x rows x outputs x inputs),
// both also as a share of the peak. Few rows pass over so many matrices that no cache holds them.

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/matmul.h"
#include "peaks.h"

namespace cohort::bench {
namespace {

using kernels::cpu::PackedMatrix;

constexpr size_t kManyBytes = 600 << 20;
constexpr int kFewMatrices = 8;  // for rows whose arithmetic takes longer than the memory
constexpr int kPasses = 5;
constexpr int kRows[] = {1, 2, 4, 8, 16, 64, 512};
constexpr int kMemoryBoundRows = 16;  // and fewer pass over all matrices

struct Shape {
  int outputs, inputs;
};
constexpr Shape kShapes[] = {{2048, 2048}, {8192, 2048}, {2048, 8192}};

constexpr std::string_view kFormats[] = {"Q4_0", "Q4_1", "Q8_0"};

/// Of each sixteen groups of activations so many stand out, the same of every row.
constexpr int kOutstanding[] = {0, 3};

struct Peaks {
  double read_gb_s, int8_gop_s;
};

/// One random matrix and copies of it, each in memory of its own.
class Matrices {
 public:
  Matrices(kernels::cpu::Cpu& cpu, const Shape& shape, const kernels::cpu::BlockFormat& format) {
    all_.push_back(kernels::cpu::pack_quantized(
        arena_, cpu.pool(), shape.outputs, shape.inputs, format.layout,
        [&](int64_t row, int64_t group, kernels::cpu::DecodedGroup& out) {
          std::minstd_rand random(static_cast<unsigned>(row * 1000 + group + 1));
          const unsigned codes = 1u << format.layout.bits;
          for (uint8_t& code : out.codes) code = static_cast<uint8_t>(random() % codes);
          out.scale[0] = out.scale[1] = 0.01f;
          out.min = format.layout.has_min ? -0.05f : 0;
        }));
    const PackedMatrix first = all_.front();
    for (size_t bytes = first.total_bytes(); bytes < kManyBytes; bytes += first.total_bytes()) {
      all_.push_back(first);
      all_.back().data = arena_.take(first.total_bytes());
      std::memcpy(all_.back().data, first.data, first.total_bytes());
    }
  }

  /// Seconds of one matmul: the median of passes over the first `count` matrices.
  double time(kernels::cpu::Cpu& cpu, int outstanding, int rows, size_t count) const {
    const PackedMatrix& first = all_.front();
    std::vector<float> x(static_cast<size_t>(rows) * first.cols);
    std::vector<float> out(static_cast<size_t>(rows) * first.rows);
    for (size_t i = 0; i < x.size(); ++i) {
      const bool stands_out = i % 32 == 0 && i / 32 % 16 < static_cast<size_t>(outstanding);
      x[i] = stands_out ? 20 : std::sin(static_cast<float>(i));
    }
    count = std::min(count, all_.size());
    std::vector<double> times;
    for (int pass = 0; pass <= kPasses; ++pass) {
      const auto start = std::chrono::steady_clock::now();
      for (size_t i = 0; i < count; ++i) {
        kernels::cpu::matmul(cpu, {.matrices = {&all_[i]}}, x.data(), nullptr, rows, out.data());
      }
      if (pass > 0) times.push_back(seconds(start) / static_cast<double>(count));
    }
    std::ranges::sort(times);
    return times[kPasses / 2];
  }
  size_t count() const { return all_.size(); }
  const PackedMatrix& front() const { return all_.front(); }

 private:
  kernels::cpu::WeightArena arena_;
  std::vector<PackedMatrix> all_;
};

void measure(kernels::cpu::Cpu& cpu, const Peaks& peaks, const Shape& shape,
             const kernels::cpu::BlockFormat& format) {
  const Matrices matrices(cpu, shape, format);
  for (const int outstanding : kOutstanding) {
    for (const int rows : kRows) {
      const size_t count = rows <= kMemoryBoundRows ? matrices.count() : kFewMatrices;
      const double time = matrices.time(cpu, outstanding, rows, count);
      const double gb_s = static_cast<double>(matrices.front().total_bytes()) / time / 1e9;
      const double gop_s = 2.0 * rows * shape.outputs * shape.inputs / time / 1e9;
      fmt::print(
          "{{\"outputs\": {}, \"inputs\": {}, \"format\": \"{}\", \"outstanding\": {:.2f}, "
          "\"rows\": {}, \"gb_s\": {:.1f}, \"gop_s\": {:.0f}, \"of_read\": {:.2f}, "
          "\"of_int8\": {:.2f}}}\n",
          shape.outputs, shape.inputs, format.name, outstanding / 16.0, rows, gb_s, gop_s,
          gb_s / peaks.read_gb_s, peaks.int8_gop_s > 0 ? gop_s / peaks.int8_gop_s : 0);
      std::fflush(stdout);
    }
  }
}

void run(int threads, std::span<const std::string_view> formats) {
  kernels::cpu::Cpu cpu(threads);
  const Peaks peaks{read_gb_s(cpu.pool()), int8_gop_s(cpu.pool())};
  fmt::print(
      "{{\"threads\": {}, \"kernels\": \"{}\", \"read_gb_s\": {:.1f}, \"int8_gop_s\": {:.0f}}}\n",
      cpu.pool().size(), cpu.kernels().name, peaks.read_gb_s, peaks.int8_gop_s);
  for (const std::string_view name : formats) {
    const kernels::cpu::BlockFormat* format = kernels::cpu::block_format(name);
    if (format == nullptr) fail(ErrorKind::kInvalidRequest, "{} is no format", name);
    for (const Shape& shape : kShapes) measure(cpu, peaks, shape, *format);
  }
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  const std::vector<std::string_view> given(argv + std::min(argc, 2), argv + argc);
  cohort::bench::run(
      argc > 1 ? std::atoi(argv[1]) : 0,
      given.empty() ? std::span<const std::string_view>(cohort::bench::kFormats) : given);
}
