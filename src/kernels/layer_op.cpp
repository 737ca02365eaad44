#include <utility>

#include "kernels/cpu_node.h"
#include "kernels/ops.h"

namespace cohort::kernels {

mx::array Ops::layers(std::vector<LayerRun> runs, const mx::array& x,
                      const std::vector<mx::array>& tables) {
  mx::array y = x;
  for (LayerRun& run : runs) {
    const cpu::DecoderLayer& layer = *run.layer;
    const mx::array qkv = matmul(layer.qkv, y, std::nullopt);
    const mx::array mixed = attention(layer.attention, std::move(run.rows), tables[run.table], qkv);
    const mx::array h = matmul(layer.out, mixed, y);
    y = matmul(layer.down, matmul(layer.gate_up, h, std::nullopt), h);
  }
  return y;
}

mx::array CpuOps::layers(std::vector<LayerRun> runs, const mx::array& x,
                         const std::vector<mx::array>& tables) {
  const int tokens = x.shape(0), hidden = x.shape(1);
  std::vector<mx::array> inputs{x};
  inputs.insert(inputs.end(), tables.begin(), tables.end());
  return cpu_node(
      "layers", {tokens, hidden}, mx::float32, std::move(inputs),
      [this, tokens, hidden, runs = std::move(runs)](std::span<const void* const> in, void* out) {
        auto* const last = static_cast<float*>(out);
        auto* const other = reinterpret_cast<float*>(
            cpu_.forward_scratch(static_cast<size_t>(tokens) * hidden * sizeof(float)));
        const auto* from = static_cast<const float*>(in[0]);
        for (size_t i = 0; i < runs.size(); ++i) {
          float* const to = (runs.size() - i) % 2 == 1 ? last : other;
          const auto* cos_sin = static_cast<const float*>(in[1 + runs[i].table]);
          cpu::decoder_layer(cpu_, *runs[i].layer, runs[i].rows, cos_sin, from, tokens, to);
          from = to;
        }
      });
}

}  // namespace cohort::kernels
