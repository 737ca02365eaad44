// The limits of this machine with some threads:
//   build/release/bench/limits [THREADS]     (default: one per core)
// Prints one line of JSON: GB/s read from memory, int8 GOP/s (vpdpbusd, from registers, and with
// one factor from L1), f32 GFLOP/s. A multiplication with its addition counts as two.

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "peaks.h"

namespace {

std::string or_words(double rate, const char* words) {
  return rate > 0 ? fmt::format("{:.1f}", rate) : fmt::format("\"{}\"", words);
}

}  // namespace

int main(int argc, char** argv) {
  cohort::kernels::cpu::Cpu cpu(argc > 1 ? std::atoi(argv[1]) : 0);
  auto& pool = cpu.pool();
  fmt::print(
      "{{\"threads\": {}, \"read_gb_s\": {:.1f}, \"int8_gop_s\": {}, \"int8_from_l1_gop_s\": {}, "
      "\"f32_gflop_s\": {}}}\n",
      pool.size(), cohort::bench::read_gb_s(pool),
      or_words(cohort::bench::int8_gop_s(pool), "no VNNI"),
      or_words(cohort::bench::int8_from_l1_gop_s(pool), "no VNNI"),
      or_words(cohort::bench::f32_gflop_s(pool), "no FMA"));
}
