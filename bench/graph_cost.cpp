// What a decode step costs beside its kernels: steps of a model of 30 layers that are so narrow
// that next to nothing is computed, as the engine runs them:
//   build/release/bench/graph_cost [LAYERS]     (default 30)
// Prints one line of JSON per thread count: microseconds of a step (median), and of its parts:
// building the graph, evaluating it, projecting. What the narrow kernels compute is in them.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "engine/model_forward.h"
#include "kernels/device.h"
#include "kv/scheme.h"
#include "model/feed.h"
#include "tests/support/random_checkpoint.h"

namespace cohort {
namespace {

constexpr int kRows = 100, kTokens = 20;  // short rows: attention has next to nothing to read

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run(const model::Checkpoint& checkpoint, int threads) {
  kernels::cpu::Cpu cpu(threads);
  const auto model = model::load_model(checkpoint, {}, cpu);
  engine::ModelForward forward(*model, Device::kCpu);
  forward.begin();
  kv::KvMemory memory(model->shape().layers, SIZE_MAX, forward.block_copy());
  const kv::RowPrecision precision = kv::resolve(kv::KvScheme{}, model->shape().layers);
  const std::vector<int32_t> ids(kTokens, 1);
  const size_t sample = 0;
  std::vector<double> total, build, evaluate, project;
  const auto step = [&](const model::TokenGroup& group) {
    forward.run({&group, 1}, {&sample, 1});
    const auto microseconds = [](auto from, auto to) {
      return std::chrono::duration<double, std::micro>(to - from).count();
    };
    const engine::ForwardTimes& times = forward.times();
    total.push_back(microseconds(times.begun, times.projected));
    build.push_back(microseconds(times.begun, times.built));
    evaluate.push_back(microseconds(times.built, times.evaluated));
    project.push_back(microseconds(times.evaluated, times.projected));
  };
  for (int row = 0; row < kRows; ++row) {
    kv::RowCache cache = memory.new_row(precision);
    model::feed(cpu, cache, ids, 1, step);
  }
  fmt::print(
      "{{\"layers\": {}, \"threads\": {}, \"step_us\": {:.0f}, \"build_us\": {:.0f}, "
      "\"evaluate_us\": {:.0f}, \"project_us\": {:.0f}}}\n",
      model->shape().layers.size(), threads, median(total), median(build), median(evaluate),
      median(project));
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  cohort::kernels::use(cohort::Device::kCpu);
  const int layers = argc > 1 ? std::atoi(argv[1]) : 30;
  const cohort::test::RandomCheckpoint checkpoint({.layers = layers});
  for (int threads : {1, 2}) cohort::run(checkpoint.opened(), threads);
}
