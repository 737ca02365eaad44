// How far the default arithmetic (integer activations, bf16 KV) is from --exact, on real text:
//   build/release/bench/quality MODEL TEXT_FILE...
// Prints one line of JSON: tokens, top1_agreement, mean_kl (of exact from default, nats).

#include <fmt/format.h>

#include "bench/divergence.h"
#include "kernels/cpu/cpu.h"

int main(int argc, char** argv) {
  using namespace cohort;
  if (argc < 3) {
    fmt::print(stderr, "usage: quality MODEL.gguf|FOLDER TEXT_FILE...\n");
    return 2;
  }
  bench::mx::set_default_device(bench::mx::Device::cpu);
  kernels::cpu::Cpu cpu(0);
  const auto checkpoint = model::Checkpoint::open(argv[1]);
  const auto exact = model::load_model(checkpoint, {.exact = true}, cpu);
  const auto other = model::load_model(checkpoint, {}, cpu);
  bench::Divergence total;
  for (const auto& ids : bench::windows(checkpoint, argv + 2, argc - 2, 512)) {
    total.add(bench::logits(*exact, ids, {.dense_bf16 = false}), bench::logits(*other, ids, {}));
  }
  fmt::print(
      "{{\"model\": \"{}\", \"tokens\": {}, \"top1_agreement\": {:.4f}, \"mean_kl\": {:.5f}}}\n",
      argv[1], total.tokens, total.top1(), total.mean_kl());
  return 0;
}
