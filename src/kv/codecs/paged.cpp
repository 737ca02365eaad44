// Any attention cache with its blocks as they are in memory, and a table that says which block of
// the file holds which 64 positions. Slots behind the offset are saved as tokens of zeros: what the
// block held before is nobody's business.

#include <cstring>
#include <vector>

#include "kv/codecs/codec.h"

namespace cohort::kv {
namespace {

using kernels::cpu::kBlockTokens;
using kernels::cpu::KvGeometry;

class PagedCodec final : public CacheCodec {
 public:
  void describe(const LayerCache& cache, CacheState state, CacheLayout& layout) const override {
    const auto& attention = static_cast<const AttentionCache&>(cache);
    describe_attention(attention, state, layout.header);
    boost::json::array table;
    int64_t blocks = 0;
    for (int64_t begin = 0; begin < state.offset; begin += kBlockTokens) {
      const bool held = attention.holds(static_cast<size_t>(begin / kBlockTokens), state.offset);
      table.push_back(held ? boost::json::value(blocks++) : boost::json::value(nullptr));
    }
    const KvGeometry geometry = attention.geometry(state.converted);
    const SavedType element = geometry.coded()                   ? SavedType::kU8
                              : geometry.encoding.key_bits == 16 ? SavedType::kBF16
                                                                 : SavedType::kF32;
    layout.header["paged"] = {
        {"capacityTokens", static_cast<int64_t>(table.size()) * kBlockTokens},
        {"blockSize", kBlockTokens},
        {"blockTable", std::move(table)},
        {"numBlocks", blocks},
        {"headDim", geometry.head_dim},
        {"vHeadDim", geometry.head_dim},
        {"numKvHeads", geometry.kv_heads},
        {"dtype", info(element).name},
        {"direct", true},  // attention reads the blocks in place
    };
    layout.tensors.push_back(
        {"blocks", SavedType::kU8, {blocks, static_cast<int64_t>(geometry.block_bytes())}});
  }

  void write(const LayerCache& cache, size_t, const Sink& sink) const override {
    const auto& attention = static_cast<const AttentionCache&>(cache);
    const size_t bytes = attention.geometry().block_bytes();
    for_each_held(attention, attention.offset(), [&](size_t block, int tokens) {
      if (tokens == kBlockTokens) return sink(Bytes(attention.block(block), bytes));
      sink(cleaned(attention.geometry(), attention.block(block), tokens));
    });
  }

  void read(LayerCache& cache, size_t, const Source& source) const override {
    auto& attention = static_cast<AttentionCache&>(cache);
    const size_t bytes = attention.geometry().block_bytes();
    for_each_held(attention, attention.offset(), [&](size_t block, int) {
      source(std::span(attention.restored_block(block), bytes));
    });
  }

 private:
  /// The block with nothing but its first `used` tokens.
  static std::vector<std::byte> cleaned(const KvGeometry& geometry, const std::byte* block,
                                        int used) {
    std::vector<std::byte> copy(geometry.block_bytes());
    const std::vector<float> zeros(static_cast<size_t>(geometry.head_dim));
    std::memcpy(copy.data(), block, copy.size());
    for (int head = 0; head < geometry.kv_heads; ++head) {
      for (int slot = used; slot < kBlockTokens; ++slot) {
        store_kv(geometry, copy.data(), head, slot, zeros.data(), zeros.data());
      }
    }
    return copy;
  }
};

}  // namespace

const CacheCodec& paged_codec() {
  static const PagedCodec codec;
  return codec;
}

}  // namespace cohort::kv
