// How long one decode step of attention takes for each encoding of keys and values, alternating:
//   build/release/bench/attention [TOKENS] [HEADS KV_HEADS HEAD_DIM]     (default 4096 9 3 64)
// Prints one line of JSON: per encoding microseconds (median), its ratio to bf16, bytes per token,
// and how many times as long it takes as the threads need to read the same blocks and do nothing.
// Thirty caches take turns, as the layers of a model do, so that nothing stays in the processor's.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/cpu/attention.h"
#include "peaks.h"

namespace cohort::kernels::cpu {
namespace {

constexpr int kLayers = 30, kRounds = 15;

struct Encoding {
  const char* name;
  KvEncoding encoding;
};
constexpr Encoding kEncodings[] = {
    {"bf16", dense_kv(true)}, {"f32", dense_kv(false)}, {"8", affine_kv(8, 64)},
    {"4", affine_kv(4, 64)},  {"k8v8", turbo_kv(8, 8)}, {"k8v4", turbo_kv(8, 4)},
    {"k8v3", turbo_kv(8, 3)}, {"k4v3", turbo_kv(4, 3)}, {"k5v5", turbo_kv(5, 5)},
};

/// The caches of all layers, filled with random tokens.
class Caches {
 public:
  Caches(const AttentionStep& step, const KvEncoding& encoding, int tokens)
      : geometry_(step.geometry(encoding)) {
    const auto blocks = static_cast<size_t>(tokens / kBlockTokens + 1);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> key(step.head_dim), value(step.head_dim);
    AlignedBuffer block(geometry_.block_bytes());
    for (int h = 0; h < step.kv_heads; ++h) {
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        for (float& x : key) x = normal(random);
        for (float& x : value) x = normal(random);
        store_kv(geometry_, block.data(), h, slot, key.data(), value.data());
      }
    }
    memory_ = AlignedBuffer(kLayers * blocks * geometry_.block_bytes());
    for (int layer = 0; layer < kLayers; ++layer) {
      layers_.emplace_back();
      for (size_t i = 0; i < blocks; ++i) {
        std::byte* at = memory_.data() + (layer * blocks + i) * geometry_.block_bytes();
        std::copy_n(block.data(), geometry_.block_bytes(), at);
        layers_.back().push_back(at);
      }
    }
  }

  /// Microseconds of a step over all layers, each.
  double attend(Cpu& cpu, const AttentionStep& step, int tokens, const float* qkv, float* out) {
    return time_layers([&](const std::vector<std::byte*>& blocks) {
      const AttentionRow row{0, 1, tokens, {geometry_.encoding, blocks.data()}};
      attention(cpu, step, {&row, 1}, qkv, out);
    });
  }
  /// The same for reading their blocks, as many at a time as a segment has.
  double read(Cpu& cpu) {
    return time_layers([&](const std::vector<std::byte*>& blocks) {
      cpu.pool().parallel_for((blocks.size() - 1) / kSegmentBlocks + 1, [&](size_t i) {
        const size_t count = std::min(blocks.size() - i * kSegmentBlocks, size_t{kSegmentBlocks});
        const uint64_t sum =
            bench::sum_of(blocks[i * kSegmentBlocks], count * geometry_.block_bytes());
        asm volatile("" : : "r"(sum));
      });
    });
  }
  size_t bytes_per_token() const { return geometry_.bytes_per_token(); }

 private:
  template <class Run>
  double time_layers(Run run) {
    const auto start = std::chrono::steady_clock::now();
    for (const auto& blocks : layers_) run(blocks);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    return time.count() / kLayers;
  }

  KvGeometry geometry_;
  AlignedBuffer memory_;
  std::vector<std::vector<std::byte*>> layers_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run(int tokens, int heads, int kv_heads, int head_dim) {
  Cpu cpu(0);
  const AttentionStep step{.heads = heads,
                           .kv_heads = kv_heads,
                           .head_dim = head_dim,
                           .scale = 1 / std::sqrt(static_cast<float>(head_dim))};
  std::vector<float> qkv(step.qkv_columns()), out(step.outputs());
  for (size_t i = 0; i < qkv.size(); ++i) qkv[i] = std::sin(static_cast<float>(i));
  std::vector<Encoding> encodings;
  std::vector<Caches> caches;
  for (const Encoding& e : kEncodings) {
    if (!refusal(e.encoding, head_dim).empty()) continue;
    encodings.push_back(e);
    caches.emplace_back(step, e.encoding, tokens);
  }
  std::vector<std::vector<double>> times(caches.size()), reads(caches.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < caches.size(); ++i) {
      times[i].push_back(caches[i].attend(cpu, step, tokens, qkv.data(), out.data()));
    }
    for (size_t i = 0; i < caches.size(); ++i) reads[i].push_back(caches[i].read(cpu));
  }
  fmt::print(
      "{{\"tokens\": {}, \"heads\": {}, \"kv_heads\": {}, \"head_dim\": {}, \"threads\": {}, "
      "\"kernels\": \"{}\"",
      tokens, heads, kv_heads, head_dim, cpu.pool().size(), cpu.kernels().name);
  for (size_t i = 0; i < caches.size(); ++i) {
    std::vector<double> ratios;
    for (int round = 0; round < kRounds; ++round)
      ratios.push_back(times[i][round] / times[0][round]);
    const double us = median(times[i]), read_us = median(reads[i]);
    fmt::print(
        ", \"{}\": {{\"us\": {:.1f}, \"ratio\": {:.2f}, \"bytes_per_token\": {}, "
        "\"read_us\": {:.1f}, \"to_read\": {:.2f}}}",
        encodings[i].name, us, median(ratios), caches[i].bytes_per_token(), read_us, us / read_us);
  }
  fmt::print("}}\n");
}

}  // namespace
}  // namespace cohort::kernels::cpu

int main(int argc, char** argv) {
  const auto argument = [&](int index, int otherwise) {
    return argc > index ? std::atoi(argv[index]) : otherwise;
  };
  cohort::kernels::cpu::run(argument(1, 4096), argument(2, 9), argument(3, 3), argument(4, 64));
}
