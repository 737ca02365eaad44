#include <utility>

#include "kernels/cpu_node.h"
#include "kernels/ops.h"

namespace cohort::kernels {

mx::array Ops::layer(const cpu::DecoderLayer& layer, const mx::array& x,
                     std::vector<cpu::AttentionRow> rows, const mx::array& cos_sin) {
  const mx::array qkv = matmul(layer.qkv, x, std::nullopt);
  const mx::array mixed = attention(layer.attention, std::move(rows), cos_sin, qkv);
  const mx::array h = matmul(layer.out, mixed, x);
  return matmul(layer.down, matmul(layer.gate_up, h, std::nullopt), h);
}

mx::array CpuOps::layer(const cpu::DecoderLayer& layer, const mx::array& x,
                        std::vector<cpu::AttentionRow> rows, const mx::array& cos_sin) {
  const int tokens = x.shape(0);
  return cpu_node(
      "layer", {tokens, layer.down.outputs()}, mx::float32, {x, cos_sin},
      [this, &layer, tokens, rows = std::move(rows)](std::span<const void* const> in, void* out) {
        cpu::decoder_layer(cpu_, layer, rows, static_cast<const float*>(in[1]),
                           static_cast<const float*>(in[0]), tokens, static_cast<float*>(out));
      });
}

}  // namespace cohort::kernels
