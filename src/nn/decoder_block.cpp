#include "nn/decoder_block.h"

#include <utility>

namespace cohort::nn {

mx::array forward(kernels::cpu::Cpu& cpu, const DecoderBlock& block, const mx::array& x,
                  std::vector<kernels::cpu::AttentionRow> rows,
                  std::shared_ptr<const std::vector<float>> cos_sin) {
  const mx::array qkv = kernels::matmul(cpu, block.qkv, x, std::nullopt);
  const mx::array mixed =
      kernels::attention(cpu, block.attention, std::move(rows), std::move(cos_sin), qkv);
  const mx::array h = kernels::matmul(cpu, block.out, mixed, x);
  return kernels::matmul(cpu, block.down, kernels::matmul(cpu, block.gate_up, h, std::nullopt), h);
}

}  // namespace cohort::nn
