#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernels/cpu_node.h"
#include "kernels/ops.h"

namespace cohort::kernels {

using cpu::kBlockTokens;

namespace {

/// Where the token at `position` of a row is in the array of its blocks.
int32_t slot_of(const cpu::AttentionRow& row, int64_t position) {
  return static_cast<int32_t>(row.kv.ids[position / kBlockTokens] * kBlockTokens +
                              position % kBlockTokens);
}

/// Makes room for `count` blocks, and for some more, so that this is seldom.
void grow(mx::array& blocks, uint32_t count) {
  const int held = blocks.shape(0) / kBlockTokens, missing = static_cast<int>(count) - held;
  if (missing <= 0) return;
  const int more = std::max(held / 4, missing) * kBlockTokens;
  blocks = mx::concatenate({blocks, mx::zeros({more, blocks.shape(1)}, blocks.dtype())}, 0);
}

/// The positions that some query of the row's tokens sees, in order.
std::vector<int32_t> visible_positions(const cpu::AttentionStep& step,
                                       const cpu::AttentionRow& row) {
  const int64_t end = row.first_position + row.tokens;
  const int64_t front =
      step.window > 0 ? std::max<int64_t>(0, row.first_position - step.window + 1) : 0;
  std::vector<int32_t> positions;
  for (int64_t p = 0; p < std::min(step.keep, front); ++p) {
    positions.push_back(static_cast<int32_t>(p));
  }
  for (int64_t p = front; p < end; ++p) positions.push_back(static_cast<int32_t>(p));
  return positions;
}

/// Which of the keys at these positions each query sees.   [keys]   ->   [tokens, keys]
mx::array visibility(const cpu::AttentionStep& step, const cpu::AttentionRow& row,
                     const mx::array& key) {
  const mx::array query =
      mx::reshape(mx::add(mx::arange(row.tokens), mx::array(static_cast<int>(row.first_position))),
                  {row.tokens, 1});
  mx::array visible = mx::less_equal(key, query);
  if (step.window == 0) return visible;
  const mx::array near =
      mx::less(mx::subtract(query, key), mx::array(static_cast<int>(step.window)));
  const mx::array kept = mx::less(key, mx::array(static_cast<int>(step.keep)));
  return mx::logical_and(visible, mx::logical_or(near, kept));
}

}  // namespace

mx::array CpuOps::attention(const cpu::AttentionStep& step, std::vector<cpu::AttentionRow> rows,
                            const mx::array& cos_sin, const mx::array& qkv) {
  return cpu_node("attention", {qkv.shape(0), step.outputs()}, mx::float32, {qkv, cos_sin},
                  [this, step, rows = std::move(rows)](std::span<const void* const> in, void* out) {
                    cpu::AttentionStep placed = step;
                    placed.cos_sin = static_cast<const float*>(in[1]);
                    cpu::attention(cpu_, placed, rows, static_cast<const float*>(in[0]),
                                   static_cast<float*>(out));
                  });
}

mx::array PlainOps::attention(const cpu::AttentionStep& step, std::vector<cpu::AttentionRow> rows,
                              const mx::array& cos_sin, const mx::array& qkv) {
  const int tokens = qkv.shape(0), dim = step.head_dim;
  const int k_begin = step.heads * dim, v_begin = k_begin + step.kv_heads * dim;
  const auto part = [&](int begin, int end) {
    return mx::reshape(mx::slice(qkv, {0, begin}, {tokens, end}),
                       {tokens, (end - begin) / dim, dim});
  };
  const mx::array table = mx::reshape(cos_sin, {tokens, 1, step.rope_dims});
  const mx::array q = place_heads(step, part(0, k_begin), step.q_norm, table);
  const mx::array k = place_heads(step, part(k_begin, v_begin), step.k_norm, table);
  const mx::array v = part(v_begin, step.qkv_columns());

  mx::array& blocks = pool(step.geometry(rows.front().kv.encoding), rows);
  std::vector<int32_t> slots;
  for (const cpu::AttentionRow& row : rows) {
    for (int i = 0; i < row.tokens; ++i) slots.push_back(slot_of(row, row.first_position + i));
  }
  // Written in place: nothing but this graph refers to what the array was before.
  mx::array stored = mx::reshape(mx::concatenate({k, v}, 1), {tokens, 1, 2 * step.kv_heads * dim});
  const std::pair<int, int> padding{0, blocks.shape(1) - stored.shape(2)};
  if (padding.second > 0) stored = mx::pad(stored, {{0, 0}, {0, 0}, padding});
  blocks = mx::scatter(blocks, as_array(slots), mx::astype(stored, blocks.dtype()), 0);

  std::vector<mx::array> outputs;
  for (const cpu::AttentionRow& row : rows) {
    const int end = row.first_token + row.tokens;
    const mx::array queries = mx::slice(q, {row.first_token, 0, 0}, {end, step.heads, dim});
    outputs.push_back(attend(step, row, queries, blocks));
  }
  return outputs.size() == 1 ? outputs[0] : mx::concatenate(outputs, 0);
}

mx::array PlainOps::place_heads(const cpu::AttentionStep& step, const mx::array& x,
                                const float* weight, const mx::array& cos_sin) {
  const int tokens = x.shape(0), heads = x.shape(1), dim = x.shape(2), half = step.rope_dims / 2;
  const mx::array y = weight != nullptr ? norm(x, weight, step.norm_eps) : x;
  if (half == 0) return y;
  const mx::array c = mx::slice(cos_sin, {0, 0, 0}, {tokens, 1, half});
  const mx::array s = mx::slice(cos_sin, {0, 0, half}, {tokens, 1, 2 * half});
  const mx::array a = mx::slice(y, {0, 0, 0}, {tokens, heads, half});
  const mx::array b = mx::slice(y, {0, 0, half}, {tokens, heads, 2 * half});
  const mx::array rest = mx::slice(y, {0, 0, 2 * half}, {tokens, heads, dim});
  return mx::concatenate({mx::subtract(mx::multiply(a, c), mx::multiply(b, s)),
                          mx::add(mx::multiply(b, c), mx::multiply(a, s)), rest},
                         -1);
}

mx::array& PlainOps::pool(const cpu::KvGeometry& geometry,
                          const std::vector<cpu::AttentionRow>& rows) {
  uint32_t last = 0;
  for (const cpu::AttentionRow& row : rows) {
    check(row.kv.encoding == geometry.encoding && !geometry.coded(), "plain ops store one type");
    const int64_t end = row.first_position + row.tokens;
    for (int64_t block = row.first_position / kBlockTokens; block < cpu::blocks_for(end); ++block) {
      last = std::max(last, row.kv.ids[block]);
    }
  }
  const mx::Dtype type = geometry.encoding.key_bits == 16 ? mx::bfloat16 : mx::float32;
  const size_t bytes = geometry.block_bytes();
  const auto elements = static_cast<int>(bytes / kBlockTokens / mx::size_of(type));
  mx::array& blocks =
      pools_.try_emplace(bytes, mx::zeros({kBlockTokens, elements}, type)).first->second;
  check(blocks.dtype() == type, "blocks of one size are of one type");
  grow(blocks, last + 1);
  return blocks;
}

cpu::BlockCopy PlainOps::block_copy() {
  return [this](size_t block_bytes, uint32_t from, uint32_t to) {
    const auto found = pools_.find(block_bytes);
    check(found != pools_.end(), "a block that is copied was written");
    mx::array& blocks = found->second;
    grow(blocks, to + 1);
    const auto slots = [&](uint32_t block) {
      return mx::arange(static_cast<int>(block) * kBlockTokens,
                        static_cast<int>(block + 1) * kBlockTokens);
    };
    const mx::array copy = mx::expand_dims(mx::take(blocks, slots(from), 0), 1);
    blocks = mx::scatter(blocks, slots(to), copy, 0);
  };
}

mx::array PlainOps::attend(const cpu::AttentionStep& step, const cpu::AttentionRow& row,
                           const mx::array& queries, const mx::array& pool) {
  const int dim = step.head_dim, kv_heads = step.kv_heads;
  const std::vector<int32_t> positions = visible_positions(step, row);
  const auto keys = static_cast<int>(positions.size());
  std::vector<int32_t> slots;
  for (int32_t position : positions) slots.push_back(slot_of(row, position));
  const mx::array stored = mx::astype(mx::take(pool, as_array(slots), 0), mx::float32);
  // To [1, heads, tokens, dim].
  const auto heads_first = [&](const mx::array& x) {
    return mx::expand_dims(mx::transpose(x, {1, 0, 2}), 0);
  };
  const auto part = [&](int begin) {
    const mx::array half = mx::slice(stored, {0, begin}, {keys, begin + kv_heads * dim});
    return heads_first(mx::reshape(half, {keys, kv_heads, dim}));
  };
  // A single token sees all of them.
  std::optional<mx::array> mask;
  if (row.tokens > 1) mask = visibility(step, row, as_array(positions));
  const mx::array out = mx::fast::scaled_dot_product_attention(
      heads_first(queries), part(0), part(kv_heads * dim), step.scale, "", mask);
  return mx::reshape(mx::transpose(mx::squeeze(out, 0), {1, 0, 2}), {row.tokens, step.outputs()});
}

}  // namespace cohort::kernels
