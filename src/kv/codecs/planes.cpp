#include "kv/codecs/planes.h"

#include "base/bit_stream.h"

namespace cohort::kv {

using namespace kernels::cpu;  // NOLINT(google-build-using-namespace): names of one layout

namespace {

size_t row_bytes(const Plane& plane) {
  return static_cast<size_t>(plane.columns) * info(plane.type).bytes;
}

using CodeOf = uint32_t (*)(const KvGeometry&, const std::byte* head, int slot, int channel);
using PutCodes = void (*)(const KvGeometry&, std::byte* head, int slot, int channel,
                          const uint8_t* codes, int count);

void save_codes(const KvGeometry& g, const std::byte* head, int slot, std::byte* row, int bits,
                CodeOf code_of) {
  for (int d = 0; d < g.head_dim; ++d) {
    write_bits(row, static_cast<size_t>(d), bits, code_of(g, head, slot, d));
  }
}

void load_codes(const KvGeometry& g, std::byte* head, int slot, const std::byte* row, int bits,
                PutCodes put_codes) {
  uint8_t codes[kMaxHeadDim];
  for (int d = 0; d < g.head_dim; ++d) {
    codes[d] = static_cast<uint8_t>(read_bits(row, static_cast<size_t>(d), bits));
  }
  put_codes(g, head, slot, 0, codes, g.head_dim);
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
  save_codes(g, head, slot, row, g.encoding.key_bits, key_code);
}
void load_key_codes(const KvGeometry& g, std::byte* head, int slot, const std::byte* row) {
  load_codes(g, head, slot, row, g.encoding.key_bits, put_key_codes);
}

void save_value_codes(const KvGeometry& g, const std::byte* head, int slot, std::byte* row) {
  save_codes(g, head, slot, row, g.encoding.value_bits, value_code);
}
void load_value_codes(const KvGeometry& g, std::byte* head, int slot, const std::byte* row) {
  load_codes(g, head, slot, row, g.encoding.value_bits, put_value_codes);
}

}  // namespace cohort::kv
