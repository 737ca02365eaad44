#pragma once

#include <fmt/format.h>

#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/encodings/encoding.h"
#include "kv/row_cache.h"

namespace cohort::kv::test {

/// One layer of a row and how it is stored.
struct LayerCase {
  AnyLayerSpec spec;
  LayerPrecision precision;
  const LayerSpec* attention() const { return std::get_if<LayerSpec>(&spec); }
};

/// Every kind of cache, encoding, window and change of precision.
inline std::vector<LayerCase> layer_cases() {
  using namespace kernels::cpu;
  const auto fixed = [](KvEncoding encoding) { return LayerPrecision{encoding, encoding, 0}; };
  std::vector<LayerCase> cases;
  for (const bool bf16 : {true, false}) {
    for (const auto& [window, keep] : {std::pair{0, 0}, {1, 0}, {64, 0}, {100, 0}, {70, 65}}) {
      cases.push_back({LayerSpec{2, 24, window, keep}, fixed(dense_kv(bf16))});
    }
  }
  for (const int bits : {4, 8}) {
    for (const int group : {32, 64, 128}) {
      cases.push_back({LayerSpec{2, 128}, fixed(affine_kv(bits, group))});
    }
    cases.push_back({LayerSpec{1, 64, 50, 0}, fixed(affine_kv(bits, 64))});
    cases.push_back({LayerSpec{3, 32, 10, 128}, fixed(affine_kv(bits, 32))});
  }
  for (const auto& [k, v] : {std::pair{8, 3}, {8, 4}, {4, 3}, {2, 2}, {5, 5}, {8, 8}}) {
    cases.push_back({LayerSpec{2, 64}, fixed(turbo_kv(k, v))});
  }
  cases.push_back({LayerSpec{1, 128}, fixed(turbo_kv(4, 2))});
  for (const int64_t start : {64, 100}) {
    for (const bool bf16 : {true, false}) {
      cases.push_back({LayerSpec{2, 64}, {dense_kv(bf16), affine_kv(8, 64), start}});
      cases.push_back({LayerSpec{2, 32, 40, 0}, {dense_kv(bf16), affine_kv(4, 32), start}});
      cases.push_back({LayerSpec{1, 64}, {dense_kv(bf16), turbo_kv(8, 3), start}});
    }
    cases.push_back({LayerSpec{1, 32, 30, 1}, {dense_kv(true), affine_kv(8, 32), start}});
  }
  cases.push_back({RecurrentSpec{5, 3, 2, 4, 6, 7}, {}});
  cases.push_back({RecurrentSpec{4, 0, 1, 3, 2, 0}, {}});
  return cases;
}

/// Saved in the portable form, a cache must be of a kind that other programs know.
inline LayerCase windowed_turbo() {
  const auto turbo = kernels::cpu::turbo_kv(4, 3);
  return {LayerSpec{2, 64, 40, 0}, {turbo, turbo, 0}};
}

/// The input of a token, about normal: the same for the same position and `text`.
inline std::vector<float> token_floats(size_t n, int64_t position, uint32_t text) {
  std::vector<float> out(n);
  uint64_t state = static_cast<uint64_t>(position) << 32 | text;
  for (float& x : out) {
    state += 0x9e3779b97f4a7c15;  // splitmix64
    uint64_t mixed = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    int64_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += mixed >> (16 * i) & 0xffff;
    x = static_cast<float>(sum - 2 * 0xffff) * 2.6e-5f;
  }
  return out;
}

inline void write_attention(AttentionCache& cache, int64_t position, uint32_t text) {
  const LayerSpec& spec = cache.spec();
  const kernels::cpu::KvView view = cache.view();
  const kernels::cpu::KvGeometry geometry = spec.geometry(view.encoding);
  const auto size = static_cast<size_t>(spec.kv_heads * spec.head_dim);
  const std::vector<float> x = token_floats(2 * size, position, text);
  for (int h = 0; h < spec.kv_heads; ++h) {
    store_kv(geometry, view.blocks[position / 64], h, static_cast<int>(position % 64),
             x.data() + h * spec.head_dim, x.data() + size + h * spec.head_dim);
  }
}

/// A recurrence over whole blocks: what the state becomes depends on every token.
inline void write_recurrent(RecurrentCache& cache, int64_t tokens, uint32_t text) {
  const RecurrentSpec& spec = cache.spec();
  RecurrentState now = cache.current();
  const auto width = static_cast<size_t>(spec.open_width);
  const auto channels = static_cast<size_t>(spec.conv_channels);
  for (int64_t p = cache.offset(); p < cache.offset() + tokens; ++p) {
    const auto conv = token_floats(channels, p, text), open = token_floats(width, p, text + 1);
    now.conv.insert(now.conv.end(), conv.begin(), conv.end());
    now.conv.erase(now.conv.begin(), now.conv.begin() + static_cast<ptrdiff_t>(channels));
    now.open.insert(now.open.end(), open.begin(), open.end());
    if ((p + 1) % 64 != 0) continue;
    const auto x = token_floats(now.state.size(), p, text + 2);
    for (size_t i = 0; i < x.size(); ++i) {
      now.state[i] = now.state[i] * 0.5f + x[i];
      if (width > 0) now.state[i] += now.open[i % now.open.size()];
    }
    now.open.clear();
  }
  cache.next() = now;
}

/// Writes `tokens` behind what is committed; they must have been reserved.
inline void write_tokens(LayerCache& cache, int64_t tokens, uint32_t text = 0) {
  if (auto* recurrent = dynamic_cast<RecurrentCache*>(&cache)) {
    write_recurrent(*recurrent, tokens, text);
    return;
  }
  auto& attention = static_cast<AttentionCache&>(cache);
  for (int64_t i = 0; i < tokens; ++i) write_attention(attention, cache.offset() + i, text);
}

/// What the engine does with `tokens` more tokens.
inline void append(RowCache& row, int64_t tokens, kernels::cpu::Cpu& cpu, uint32_t text = 0) {
  while (tokens > 0) {
    const int64_t now = std::min(tokens, row.max_append_tokens());
    row.reserve(now);
    for (size_t i = 0; i < row.layers(); ++i) write_tokens(row.layer(i), now, text);
    row.commit(now);
    row.maintain(cpu);
    tokens -= now;
  }
}

/// Everything that means something in a token's slot of an attention cache: the codes and scales
/// of every head, or the elements.
inline void put_slot(const kernels::cpu::KvGeometry& g, const std::byte* block, int slot,
                     std::vector<std::byte>& out) {
  using namespace kernels::cpu;
  const auto put = [&](const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    out.insert(out.end(), from, from + bytes);
  };
  for (int h = 0; h < g.kv_heads; ++h) {
    const std::byte* head = block + h * g.head_bytes();
    float key[kMaxHeadDim], value[kMaxHeadDim];
    if (!g.coded()) {
      load_kv(g, block, h, slot, key, value);
      put(key, sizeof(float) * g.head_dim);
      put(value, sizeof(float) * g.head_dim);
      continue;
    }
    uint8_t codes[kMaxHeadDim];
    for (int d = 0; d < g.head_dim; ++d) {
      codes[d] = static_cast<uint8_t>(key_code(g, head, slot, d));
    }
    put(codes, static_cast<size_t>(g.head_dim));
    for (int d = 0; d < g.head_dim; ++d) {
      codes[d] = static_cast<uint8_t>(value_code(g, head, slot, d));
    }
    put(codes, static_cast<size_t>(g.head_dim));
    for (int array = 0; array < g.scale_arrays(); ++array) {
      for (int i = 0; i < g.groups(); ++i) {
        put(scale_at(g, head, static_cast<KvScales>(array), i, slot), 2);
      }
    }
  }
}

/// Everything that means something in a cache; of attention, the tokens that it holds.
inline std::vector<std::byte> image(const LayerCache& cache) {
  std::vector<std::byte> found;
  const auto* attention = dynamic_cast<const AttentionCache*>(&cache);
  if (attention == nullptr) {
    for (const auto& array : cache.arrays()) found.insert(found.end(), array.begin(), array.end());
    return found;
  }
  found.reserve(static_cast<size_t>(cache.offset()) * 2048);
  for (int64_t p = 0; p < cache.offset(); ++p) {
    const std::byte* block = attention->block(static_cast<size_t>(p / 64));
    found.push_back(block != nullptr ? std::byte{1} : std::byte{0});
    if (block != nullptr) put_slot(attention->geometry(), block, static_cast<int>(p % 64), found);
  }
  return found;
}

/// The memory of a model, and its rows.
struct TestModel {
  TestModel(std::vector<AnyLayerSpec> layers, RowPrecision row_precision, size_t most_bytes)
      : memory(std::move(layers), most_bytes), precision(std::move(row_precision)) {}
  RowCache row() { return memory.new_row(precision); }
  RowCache row(int64_t tokens) {
    RowCache made = row();
    append(made, tokens, cpu);
    return made;
  }
  /// Throws unless pools and rows agree on every block.
  void check(std::initializer_list<const RowCache*> rows) {
    BlockCensus census;
    for (const RowCache* each : rows) each->check_integrity(census);
    memory.pools().check_integrity(census);
  }
  size_t used_bytes() const { return memory.pools().used_bytes(); }

  kernels::cpu::Cpu cpu{1};
  KvMemory memory;
  RowPrecision precision;
};

struct OneLayer : TestModel {
  explicit OneLayer(const LayerCase& c, size_t most_bytes = SIZE_MAX)
      : TestModel({c.spec}, {c.precision}, most_bytes) {}
};

inline std::string describe(const LayerCase& c) {
  return OneLayer(c).row().layer(0).signature();
}

}  // namespace cohort::kv::test
