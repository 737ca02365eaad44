#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace cohort::kernels::cpu {
namespace {

/// Norms and rotates one head.
void place_head(const Kernels& k, const AttentionStep& step, const float* in, const float* norm,
                const float* cos_sin, float scale, float* out) {
  const int dim = step.head_dim;
  if (norm != nullptr) {
    k.rms_norm(in, norm, step.norm_eps, dim, out);
    in = out;
  }
  if (step.rope_dims > 0) k.rope(in, cos_sin, step.rope_dims / 2, scale, out);
  for (int i = step.rope_dims; i < dim; ++i) out[i] = in[i] * scale;
}

/// Queries to `queries`, keys and values to the blocks, for one token.
void append_token(Cpu& cpu, const AttentionStep& step, const AttentionRow& row, int index,
                  const float* qkv, float* queries) {
  const int dim = step.head_dim;
  const ptrdiff_t token = row.first_token + index;
  const int64_t position = row.first_position + index;
  const float* in = qkv + token * step.qkv_columns();
  const float* cos_sin = step.cos_sin + token * step.rope_dims;
  for (int h = 0; h < step.heads; ++h) {
    place_head(cpu.kernels(), step, in + h * dim, step.q_norm, cos_sin, step.scale,
               queries + (token * step.heads + h) * dim);
  }
  const float* keys = in + step.heads * dim;
  const float* values = keys + step.kv_heads * dim;
  const KvGeometry geometry = step.geometry(row.kv.encoding);
  float key[kMaxHeadDim];
  for (int h = 0; h < step.kv_heads; ++h) {
    place_head(cpu.kernels(), step, keys + h * dim, step.k_norm, cos_sin, 1.0f, key);
    store_kv(geometry, row.kv.blocks[position / kBlockTokens], h,
             static_cast<int>(position % kBlockTokens), key, values + h * dim);
  }
}

/// Tokens of a row at positions whose codes share bytes.
struct AppendSpan {
  const AttentionRow* row;
  int begin, end;  // of the row's tokens
};

void append(Cpu& cpu, const AttentionStep& step, std::span<const AttentionRow> rows,
            const float* qkv, float* queries) {
  std::vector<AppendSpan> spans;
  for (const AttentionRow& row : rows) {
    for (int begin = 0; begin < row.tokens;) {
      const auto place = static_cast<int>((row.first_position + begin) % kSharedSlots);
      const int end = std::min(row.tokens, begin + kSharedSlots - place);
      spans.push_back({&row, begin, end});
      begin = end;
    }
  }
  cpu.pool().parallel_for(spans.size(), [&](size_t i) {
    for (int t = spans[i].begin; t < spans[i].end; ++t) {
      append_token(cpu, step, *spans[i].row, t, qkv, queries);
    }
  });
}

/// Up to four queries of one row that share a kv head, in the order token, head of the group.
struct QueryTile {
  const AttentionRow* row;
  int kv_head;
  int64_t first;  // query number = token * group + head
  int count;
  int64_t begin_block, end_block;
};

std::vector<QueryTile> query_tiles(const AttentionStep& step, std::span<const AttentionRow> rows) {
  const int group = step.heads / step.kv_heads;
  std::vector<QueryTile> tiles;
  for (const AttentionRow& row : rows) {
    for (int kv_head = 0; kv_head < step.kv_heads; ++kv_head) {
      for (int64_t first = 0; first < int64_t{row.tokens} * group; first += 4) {
        const auto count =
            static_cast<int>(std::min<int64_t>(4, int64_t{row.tokens} * group - first));
        const int64_t low = row.first_position + first / group;
        const int64_t high = row.first_position + (first + count - 1) / group;
        const bool sees_all = step.window == 0 || step.keep > 0;
        const int64_t seen_from = sees_all ? 0 : std::max<int64_t>(0, low - step.window + 1);
        tiles.push_back(
            {&row, kv_head, first, count, seen_from / kBlockTokens, high / kBlockTokens + 1});
      }
    }
  }
  return tiles;
}

class Attention {
 public:
  Attention(Cpu& cpu, const AttentionStep& step, const float* queries, float* out)
      : cpu_(cpu), step_(step), queries_(queries), out_(out) {}

  int state_floats() const { return kStateHeader + value_stride(); }

  /// Attends to the blocks of one segment; `state` is [count][state_floats], overwritten.
  void segment(const QueryTile& tile, int64_t segment, float* state) const {
    const int dim = step_.head_dim, group = step_.heads / step_.kv_heads;
    AttendTile t{.keep = step_.keep,
                 .count = tile.count,
                 .blocks = tile.row->kv.blocks,
                 .geometry = step_.geometry(tile.row->kv.encoding),
                 .kv_head = tile.kv_head,
                 .state = state,
                 .state_stride = state_floats()};
    for (int i = 0; i < tile.count; ++i) {
      const int64_t query = tile.first + i;
      const int64_t position = tile.row->first_position + query / group;
      t.queries[i] = queries_ + query_index(tile, query) * dim;
      t.begin[i] = step_.window > 0 ? std::max<int64_t>(0, position - step_.window + 1) : 0;
      t.end[i] = position + 1;
    }
    std::memset(state, 0, sizeof(float) * static_cast<size_t>(tile.count) * state_floats());
    for (int i = 0; i < tile.count; ++i) {
      state[i * state_floats()] = -std::numeric_limits<float>::infinity();
    }
    t.first_block = std::max(tile.begin_block, segment * kSegmentBlocks);
    t.last_block = std::min(tile.end_block, (segment + 1) * kSegmentBlocks);
    cpu_.kernels().attend(t);
  }

  void merge(const QueryTile& tile, float* state, const float* later) const {
    for (int i = 0; i < tile.count; ++i) {
      cpu_.kernels().merge(state + i * state_floats(), later + i * state_floats(), value_stride());
    }
  }

  void write(const QueryTile& tile, const float* state) const {
    const int dim = step_.head_dim;
    for (int i = 0; i < tile.count; ++i, state += state_floats()) {
      float* out = out_ + query_index(tile, tile.first + i) * dim;
      for (int d = 0; d < dim; ++d) out[d] = state[kStateHeader + d] / state[1];
      finish_output(tile.row->kv.encoding, dim, out);
    }
  }

 private:
  int value_stride() const { return padded(step_.head_dim); }
  ptrdiff_t query_index(const QueryTile& tile, int64_t query) const {
    const int group = step_.heads / step_.kv_heads;
    const ptrdiff_t token = tile.row->first_token + query / group;
    return token * step_.heads + tile.kv_head * group + query % group;
  }

  Cpu& cpu_;
  const AttentionStep& step_;
  const float* queries_;
  float* out_;
};

constexpr size_t kTilesPerThread = 8;  // from here on, threads have tiles enough to share out

int64_t first_segment(const QueryTile& tile) {
  return tile.begin_block / kSegmentBlocks;
}
int64_t end_segment(const QueryTile& tile) {
  return (tile.end_block - 1) / kSegmentBlocks + 1;
}

}  // namespace

size_t attention_scratch_bytes(int outputs, int64_t tokens, int64_t context, int threads) {
  const int64_t segments = blocks_for(context) / kSegmentBlocks + 1;
  const int64_t tiles = kTilesPerThread * threads;
  const int64_t tile_floats = 4 * (kStateHeader + padded(std::min(outputs, kMaxHeadDim)));
  return sizeof(float) * static_cast<size_t>(tokens * outputs + tiles * segments * tile_floats);
}

void attention(Cpu& cpu, const AttentionStep& step, std::span<const AttentionRow> rows,
               const float* qkv, float* out) {
  const std::vector<QueryTile> tiles = query_tiles(step, rows);
  const auto threads = static_cast<size_t>(cpu.pool().size());
  // Few tiles over long contexts: their segments are items too. Many tiles: an item walks through
  // its segments. Either way each segment starts fresh and merges in order.
  std::vector<size_t> first_item(tiles.size() + 1, 0);
  const bool split = tiles.size() < kTilesPerThread * threads;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto segments = static_cast<size_t>(end_segment(tiles[i]) - first_segment(tiles[i]));
    first_item[i + 1] = first_item[i] + (split ? segments : 1);
  }
  size_t tokens = 0;
  for (const AttentionRow& row : rows) tokens += static_cast<size_t>(row.tokens);
  float* queries = nullptr;
  float* states = nullptr;
  ScratchPlan plan;
  const size_t tile_floats = 4 * static_cast<size_t>(kStateHeader + padded(step.head_dim));
  plan.add(queries, tokens * static_cast<size_t>(step.outputs()));
  plan.add(states, split ? first_item.back() * tile_floats : 0);
  plan.bind(cpu.step_scratch(plan.bytes()));

  append(cpu, step, rows, qkv, queries);
  const Attention work(cpu, step, queries, out);
  if (!split) {
    cpu.pool().parallel_for(tiles.size(), [&](size_t i) {
      alignas(64) float state[4 * (kStateHeader + kMaxHeadDim)];
      alignas(64) float later[4 * (kStateHeader + kMaxHeadDim)];
      work.segment(tiles[i], first_segment(tiles[i]), state);
      for (int64_t s = first_segment(tiles[i]) + 1; s < end_segment(tiles[i]); ++s) {
        work.segment(tiles[i], s, later);
        work.merge(tiles[i], state, later);
      }
      work.write(tiles[i], state);
    });
    return;
  }
  cpu.pool().parallel_for(first_item.back(), [&](size_t item) {
    const auto next = std::upper_bound(first_item.begin(), first_item.end(), item);
    const auto tile = static_cast<size_t>(next - first_item.begin()) - 1;
    work.segment(tiles[tile],
                 first_segment(tiles[tile]) + static_cast<int64_t>(item - first_item[tile]),
                 states + item * tile_floats);
  });
  cpu.pool().parallel_for(tiles.size(), [&](size_t i) {
    float* state = states + first_item[i] * tile_floats;
    for (size_t item = first_item[i] + 1; item < first_item[i + 1]; ++item) {
      work.merge(tiles[i], state, states + item * tile_floats);
    }
    work.write(tiles[i], state);
  });
}

}  // namespace cohort::kernels::cpu
