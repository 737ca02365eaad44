// What each way to store keys and values costs, on real text: next-token distributions against
// those with f32 keys and values, everything else being equal (f32 activations).
//   build/release/bench/kv_quality MODEL TEXT_FILE...
// Prints a table in Markdown; rows of 1,024 tokens.

#include <fmt/format.h>

#include "bench/divergence.h"
#include "kernels/cpu/cpu.h"

int main(int argc, char** argv) {
  using namespace cohort;
  if (argc < 3) {
    fmt::print(stderr, "usage: kv_quality MODEL.gguf|FOLDER TEXT_FILE...\n");
    return 2;
  }
  bench::mx::set_default_device(bench::mx::Device::cpu);
  kernels::cpu::Cpu cpu(0);
  const auto checkpoint = model::Checkpoint::open(argv[1]);
  const auto model = model::load_model(checkpoint, {.exact = true}, cpu);
  const char* const kSchemes[] = {"off",        "8",          "4",         "turbo:k8v8",
                                  "turbo:k8v4", "turbo:k8v3", "turbo:k4v3"};
  std::vector<bench::Divergence> totals(std::size(kSchemes));
  const auto rows = bench::windows(checkpoint, argv + 2, argc - 2, 1024);
  for (const auto& ids : rows) {
    const auto reference = bench::logits(*model, ids, {.dense_bf16 = false});
    for (size_t i = 0; i < totals.size(); ++i) {
      kv::KvScheme scheme;
      kv::set_quantization(scheme, kSchemes[i]);
      totals[i].add(reference, bench::logits(*model, ids, scheme));
    }
  }
  fmt::print("{} tokens of {}\n\n", totals[0].tokens, argv[1]);
  fmt::print("| --kv-quant | bytes per token | mean KL | top-1 agreement |\n");
  fmt::print("| --- | ---: | ---: | ---: |\n");
  for (size_t i = 0; i < totals.size(); ++i) {
    kv::KvScheme scheme;
    kv::set_quantization(scheme, kSchemes[i]);
    kv::KvMemory memory(model->shape().layers);
    const auto row = memory.new_row(kv::resolve(scheme, memory.layers()));
    fmt::print("| {} | {} | {:.5f} | {:.2f} % |\n", kSchemes[i], row.bytes_per_token(),
               totals[i].mean_kl(), 100 * totals[i].top1());
  }
  return 0;
}
