#include "kernels/cpu/decoder_layer.h"

namespace cohort::kernels::cpu {

void decoder_layer(Cpu& cpu, const DecoderLayer& layer, std::span<const AttentionRow> rows,
                   const float* cos_sin, const float* x, int tokens, float* out) {
  const auto n = static_cast<size_t>(tokens);
  float *qkv, *mixed, *h, *inner;
  ScratchPlan plan;
  plan.add(qkv, n * layer.qkv.outputs());
  plan.add(mixed, n * layer.attention.outputs());
  plan.add(h, n * layer.out.outputs());
  plan.add(inner, n * layer.gate_up.outputs());
  plan.bind(cpu.layer_scratch(plan.bytes()));

  matmul(cpu, layer.qkv, x, nullptr, tokens, qkv);
  AttentionStep placed = layer.attention;
  placed.cos_sin = cos_sin;
  attention(cpu, placed, rows, qkv, mixed);
  matmul(cpu, layer.out, mixed, x, tokens, h);
  matmul(cpu, layer.gate_up, h, nullptr, tokens, inner);
  matmul(cpu, layer.down, inner, h, tokens, out);
}

}  // namespace cohort::kernels::cpu
