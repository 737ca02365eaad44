// What a decode step costs beside its kernels: a step of SmolLM2-135M's shape as a graph, built
// and evaluated as the engine does, next to the same kernels called one after the other, in turns:
//   build/release/bench/graph_cost [THREADS] [LAYERS]     (default 2 30)
// Prints one line of JSON: microseconds of both and of the difference within a pair, medians.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "base/error.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "nn/rope.h"

namespace cohort {
namespace {

using namespace kernels::cpu;
namespace mx = mlx::core;

constexpr int kHidden = 576, kInner = 1536, kHeads = 9, kKvHeads = 3, kDim = 64, kVocab = 49152;
constexpr int kWarmUp = 20, kPairs = 400, kToken = 5, kPosition = 40;

/// Weights of arbitrary values, apart for every layer, so that they come from memory.
class Weights {
 public:
  Weights(Cpu& cpu, int layers) : cpu_(cpu), norm_(kHidden, 1.0f) {
    table_ = matrix(kVocab, kHidden);
    for (int i = 0; i < layers; ++i) add_layer();
    head_ = {.norm = norm_.data(), .matrices = {table_}};
  }
  const PackedMatrix& table() const { return *table_; }
  const std::vector<DecoderLayer>& layers() const { return layers_; }
  const MatmulStep& head() const { return head_; }

 private:
  const PackedMatrix* matrix(int rows, int cols) {
    const QuantLayout layout{.has_min = true};
    matrices_.push_back(pack_quantized(
        arena_, cpu_.pool(), rows, cols, layout, [](int64_t row, int64_t group, DecodedGroup& out) {
          for (int i = 0; i < kGroup; ++i)
            out.codes[i] = uint8_t((row * 7 + group * 5 + i * 3) % 16);
          out.scale[0] = out.scale[1] = 0.01f;
          out.min = -0.075f;
        }));
    return &matrices_.back();
  }

  void add_layer() {
    const int q = kHeads * kDim, kv = kKvHeads * kDim;
    layers_.push_back(
        {.qkv = {.norm = norm_.data(),
                 .matrices = {matrix(q, kHidden), matrix(kv, kHidden), matrix(kv, kHidden)}},
         .attention = {.heads = kHeads,
                       .kv_heads = kKvHeads,
                       .head_dim = kDim,
                       .scale = 0.125f,
                       .rope_dims = kDim},
         .out = {.matrices = {matrix(kHidden, q)}, .epilogue = Epilogue::kResidual},
         .gate_up = {.norm = norm_.data(),
                     .matrices = {matrix(kInner, kHidden), matrix(kInner, kHidden)},
                     .epilogue = Epilogue::kGated},
         .down = {.matrices = {matrix(kHidden, kInner)}, .epilogue = Epilogue::kResidual}});
  }

  Cpu& cpu_;
  std::vector<float> norm_;
  WeightArena arena_;
  std::deque<PackedMatrix> matrices_;
  const PackedMatrix* table_;
  std::vector<DecoderLayer> layers_;
  MatmulStep head_;
};

/// One step in both ways, over the same weights and caches of one block a layer.
class Step {
 public:
  Step(Cpu& cpu, int layers)
      : cpu_(cpu), ops_(cpu), weights_(cpu, layers), rope_(kDim, {.theta = 100000}) {
    const KvGeometry geometry{kKvHeads, kDim, dense_kv(true)};
    for (int i = 0; i < layers; ++i) {
      memory_.emplace_back(geometry.block_bytes());
      blocks_.push_back(memory_.back().data());
    }
    for (int64_t position = 0; position <= kPosition; ++position) as_graph(position);
    const mx::array table = rope_.table(std::vector<int64_t>{kPosition});
    cos_sin_.assign(table.data<float>(), table.data<float>() + table.size());
  }

  std::vector<float> as_graph(int64_t position = kPosition) {
    const mx::array table = rope_.table(std::vector<int64_t>{position});
    mx::array x = ops_.embed(weights_.table(), {kToken}, 1);
    std::vector<kernels::LayerRun> runs;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      runs.push_back({&weights_.layers()[i], {row(i, position)}, 0});
    }
    x = ops_.layers(std::move(runs), x, {table});
    x.eval();
    mx::array logits = ops_.matmul(weights_.head(), ops_.select_rows(x, {0}), std::nullopt);
    logits.eval();
    return {logits.data<float>(), logits.data<float>() + logits.size()};
  }

  std::vector<float> directly() {
    std::vector<float> x(kHidden), y(kHidden), logits(kVocab);
    weights_.table().unpack_row(kToken, x.data());
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const AttentionRow rows[] = {row(i, kPosition)};
      decoder_layer(cpu_, weights_.layers()[i], rows, cos_sin_.data(), x.data(), 1, y.data());
      std::swap(x, y);
    }
    matmul(cpu_, weights_.head(), x.data(), nullptr, 1, logits.data());
    return logits;
  }

 private:
  AttentionRow row(size_t layer, int64_t position) const {
    return {0, 1, position, {dense_kv(true), &blocks_[layer]}};
  }

  Cpu& cpu_;
  kernels::CpuOps ops_;
  Weights weights_;
  nn::Rope rope_;
  std::vector<float> cos_sin_;
  std::deque<AlignedBuffer> memory_;
  std::vector<std::byte*> blocks_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

template <class Body>
double microseconds(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

void run(int threads, int layers) {
  Cpu cpu(threads);
  Step step(cpu, layers);
  check(step.as_graph() == step.directly(), "both ways give the same bits");
  std::vector<double> graph, direct, cost;
  for (int pair = 0; pair < kWarmUp + kPairs; ++pair) {
    const double a = microseconds([&] { step.as_graph(); });
    const double b = microseconds([&] { step.directly(); });
    if (pair < kWarmUp) continue;
    graph.push_back(a);
    direct.push_back(b);
    cost.push_back(a - b);
  }
  fmt::print(
      "{{\"threads\": {}, \"layers\": {}, \"graph_us\": {:.0f}, \"kernels_us\": {:.0f}, "
      "\"cost_us\": {:.0f}}}\n",
      cpu.pool().size(), layers, median(graph), median(direct), median(cost));
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  const auto argument = [&](int index, int otherwise) {
    return argc > index ? std::atoi(argv[index]) : otherwise;
  };
  cohort::kernels::use(cohort::Device::kCpu);
  cohort::run(argument(1, 2), argument(2, 30));
}
