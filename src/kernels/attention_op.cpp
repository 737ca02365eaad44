#include <limits>

#include "kernels/cpu_node.h"
#include "kernels/ops.h"

namespace cohort::kernels {
namespace {

/// [tokens, heads, dim]: per-head norm, then rotation of the first rope_dims channels.
mx::array place_heads(const cpu::AttentionStep& step, mx::array x, const float* weight,
                      const mx::array& cos_sin) {
  const int tokens = x.shape(0), heads = x.shape(1), dim = x.shape(2), half = step.rope_dims / 2;
  if (weight != nullptr) {
    const mx::array squares = mx::mean(mx::square(x), -1, true);
    x = mx::multiply(mx::multiply(x, mx::rsqrt(mx::add(squares, mx::array(step.norm_eps)))),
                     mx::array(weight, {dim}));
  }
  if (half == 0) return x;
  const mx::array c = mx::slice(cos_sin, {0, 0, 0}, {tokens, 1, half});
  const mx::array s = mx::slice(cos_sin, {0, 0, half}, {tokens, 1, 2 * half});
  const mx::array a = mx::slice(x, {0, 0, 0}, {tokens, heads, half});
  const mx::array b = mx::slice(x, {0, 0, half}, {tokens, heads, 2 * half});
  const mx::array rest = mx::slice(x, {0, 0, 2 * half}, {tokens, heads, dim});
  return mx::concatenate({mx::subtract(mx::multiply(a, c), mx::multiply(b, s)),
                          mx::add(mx::multiply(b, c), mx::multiply(a, s)), rest},
                         -1);
}

}  // namespace

mx::array attention(cpu::Cpu& cpu, const cpu::AttentionStep& step,
                    std::vector<cpu::AttentionRow> rows,
                    std::shared_ptr<const std::vector<float>> cos_sin, const mx::array& qkv) {
  return cpu_node("attention", {qkv.shape(0), step.outputs()}, mx::float32, {qkv},
                  [&cpu, step, rows = std::move(rows), cos_sin = std::move(cos_sin)](
                      std::span<const void* const> in, void* out) {
                    cpu::AttentionStep placed = step;
                    placed.cos_sin = cos_sin->data();
                    cpu::attention(cpu, placed, rows, static_cast<const float*>(in[0]),
                                   static_cast<float*>(out));
                  });
}

mx::array attention_reference(const cpu::AttentionStep& step, const mx::array& cos_sin,
                              const mx::array& qkv) {
  const int tokens = qkv.shape(0), dim = step.head_dim, heads = step.heads;
  const int kv_heads = step.kv_heads, q_end = heads * dim, k_end = q_end + kv_heads * dim;
  const auto part = [&](int begin, int end, int count) {
    return mx::reshape(mx::slice(qkv, {0, begin}, {tokens, end}), {tokens, count, dim});
  };
  const mx::array table = mx::reshape(cos_sin, {tokens, 1, step.rope_dims});
  mx::array q = place_heads(step, part(0, q_end, heads), step.q_norm, table);
  mx::array k = place_heads(step, part(q_end, k_end, kv_heads), step.k_norm, table);
  mx::array v = part(k_end, step.qkv_columns(), kv_heads);
  k = mx::repeat(k, heads / kv_heads, 1);
  v = mx::repeat(v, heads / kv_heads, 1);
  const mx::array scores = mx::multiply(
      mx::matmul(mx::transpose(q, {1, 0, 2}), mx::transpose(k, {1, 2, 0})), mx::array(step.scale));
  const mx::array row = mx::reshape(mx::arange(tokens), {tokens, 1});
  const mx::array column = mx::reshape(mx::arange(tokens), {1, tokens});
  mx::array visible = mx::less_equal(column, row);
  if (step.window > 0) {
    visible = mx::logical_and(
        visible, mx::less(mx::subtract(row, column), mx::array(static_cast<int>(step.window))));
  }
  const mx::array masked =
      mx::where(visible, scores, mx::array(-std::numeric_limits<float>::infinity()));
  const mx::array out = mx::matmul(mx::softmax(masked, -1), mx::transpose(v, {1, 0, 2}));
  return mx::reshape(mx::transpose(out, {1, 0, 2}), {tokens, heads * dim});
}

}  // namespace cohort::kernels
