#include "kv/codecs/planes.h"

namespace cohort::kv {

using kernels::cpu::kBlockTokens;
using kernels::cpu::KvGeometry;

namespace {

size_t row_bytes(const Plane& plane) {
  return static_cast<size_t>(plane.columns) * info(plane.type).bytes;
}

}  // namespace

void PlaneCodec::describe(const LayerCache& cache, CacheState state, CacheLayout& layout) const {
  const auto& attention = static_cast<const AttentionCache&>(cache);
  describe_attention(attention, state, layout.header);
  int64_t tokens = 0;
  for_each_held(attention, state.offset, [&](size_t, int count) { tokens += count; });
  const KvGeometry geometry = attention.geometry(state.converted);
  for (const Plane& plane : planes_(geometry)) {
    layout.tensors.push_back(
        {std::string(plane.name), plane.type, {geometry.kv_heads, tokens, plane.columns}});
  }
}

void PlaneCodec::write(const LayerCache& cache, size_t index, const Sink& sink) const {
  const auto& attention = static_cast<const AttentionCache&>(cache);
  const KvGeometry geometry = attention.geometry();
  const Plane plane = planes_(geometry)[index];
  const size_t bytes = row_bytes(plane);
  std::vector<std::byte> rows(kBlockTokens * bytes);
  for (int h = 0; h < geometry.kv_heads; ++h) {
    for_each_held(attention, attention.offset(), [&](size_t block, int tokens) {
      const std::byte* head = attention.block(block) + h * geometry.head_bytes();
      for (int slot = 0; slot < tokens; ++slot) {
        plane.save(geometry, head, slot, rows.data() + slot * bytes);
      }
      sink(Bytes(rows).first(static_cast<size_t>(tokens) * bytes));
    });
  }
}

void PlaneCodec::read(LayerCache& cache, size_t index, const Source& source) const {
  auto& attention = static_cast<AttentionCache&>(cache);
  const KvGeometry geometry = attention.geometry();
  const Plane plane = planes_(geometry)[index];
  const size_t bytes = row_bytes(plane);
  std::vector<std::byte> rows(kBlockTokens * bytes);
  for (int h = 0; h < geometry.kv_heads; ++h) {
    for_each_held(attention, attention.offset(), [&](size_t block, int tokens) {
      source(std::span(rows).first(static_cast<size_t>(tokens) * bytes));
      std::byte* head = attention.restored_block(block) + h * geometry.head_bytes();
      for (int slot = 0; slot < tokens; ++slot) {
        plane.load(geometry, head, slot, rows.data() + slot * bytes);
      }
    });
  }
}

void save_key_codes(const KvGeometry& g, const std::byte* head, int slot, std::byte* row) {
  const int bits = g.encoding.key_bits;
  for (int d = 0; d < g.head_dim; ++d) {
    kernels::cpu::write_bits(row, static_cast<size_t>(d) * bits, bits, key_code(g, head, slot, d));
  }
}

void load_key_codes(const KvGeometry& g, std::byte* head, int slot, const std::byte* row) {
  const int bits = g.encoding.key_bits;
  for (int d = 0; d < g.head_dim; ++d) {
    const auto code =
        static_cast<uint8_t>(kernels::cpu::read_bits(row, static_cast<size_t>(d) * bits, bits));
    put_key_codes(g, head, slot, d, &code, 1);
  }
}

void save_value(const KvGeometry& g, const std::byte* head, int slot, std::byte* row) {
  std::memcpy(row, value_row(g, head, slot),
              static_cast<size_t>(g.head_dim) * g.encoding.value_bits / 8);
}

void load_value(const KvGeometry& g, std::byte* head, int slot, const std::byte* row) {
  std::memcpy(value_row(g, head, slot), row,
              static_cast<size_t>(g.head_dim) * g.encoding.value_bits / 8);
}

}  // namespace cohort::kv
