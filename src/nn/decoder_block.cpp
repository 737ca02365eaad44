#include "nn/decoder_block.h"

#include <utility>

namespace cohort::nn {

mx::array forward(kernels::Ops& ops, const DecoderBlock& block, const mx::array& x,
                  std::vector<kernels::cpu::AttentionRow> rows, const mx::array& cos_sin) {
  const mx::array qkv = ops.matmul(block.qkv, x, std::nullopt);
  const mx::array mixed = ops.attention(block.attention, std::move(rows), cos_sin, qkv);
  const mx::array h = ops.matmul(block.out, mixed, x);
  return ops.matmul(block.down, ops.matmul(block.gate_up, h, std::nullopt), h);
}

}  // namespace cohort::nn
