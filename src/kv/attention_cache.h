#pragma once

#include "kernels/cpu/attention.h"
#include "kv/layer_cache.h"

namespace cohort::kv {

/// What an attention layer keeps per token.
struct LayerSpec {
  int kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;  // keys a query sees, itself included; 0 = all
  int64_t keep = 0;    // tokens at the start that stay visible beside a window; whole blocks

  kernels::cpu::KvGeometry geometry(const kernels::cpu::KvEncoding& encoding) const {
    return {kv_heads, head_dim, encoding};
  }
};

/// How one layer of a row stores its tokens: as `first` below `start`; when `start` tokens are
/// committed all of them are converted, and `then` holds from there on.
struct LayerPrecision {
  kernels::cpu::KvEncoding first, then;
  int64_t start = 0;

  bool changes() const { return start > 0 && first != then; }
  const kernels::cpu::KvEncoding& stored(bool converted) const {
    return changes() && !converted ? first : then;
  }
  bool operator==(const LayerPrecision&) const = default;
};

/// K and V of one layer and row, of any encoding: blocks of 64 tokens aligned to position 0. A
/// window gives back front blocks that no later query can see. Blocks may be shared between
/// clones; one that is written to is copied first.
class AttentionCache final : public LayerCache {
 public:
  AttentionCache(const LayerSpec& spec, const LayerPrecision& precision, BlockPools& pools);
  ~AttentionCache() override;

  std::string signature() const override;
  void reserve(int64_t tokens) override;
  void commit(int64_t tokens) noexcept override;
  int64_t max_append_tokens() const override;
  void maintain(kernels::cpu::Cpu& cpu) override;
  int64_t trim_floor() const override;
  void trim(int64_t offset) override;
  int64_t minimum_reusable_offset() const override { return minimum_reusable_offset(converted_); }
  void restore(int64_t offset, int64_t minimum_reusable_offset) override;
  std::unique_ptr<LayerCache> clone() const override;
  size_t bytes_per_token() const override { return geometry().bytes_per_token(); }
  std::vector<std::span<const std::byte>> arrays() const override;
  void check_integrity(BlockCensus& census) const override;

  const LayerSpec& spec() const { return spec_; }
  const LayerPrecision& precision() const { return precision_; }
  bool converted() const { return converted_; }
  int64_t minimum_reusable_offset(bool converted) const { return converted ? precision_.start : 0; }
  /// How the tokens are stored now.
  kernels::cpu::KvGeometry geometry() const { return geometry(converted_); }
  /// How they are stored before and after the change of precision.
  kernels::cpu::KvGeometry geometry(bool converted) const {
    return spec_.geometry(precision_.stored(converted));
  }
  /// What attention may read and append to; valid until the next reserve or maintain.
  kernels::cpu::KvView view() const {
    return {geometry().encoding, addresses_.data(), blocks_.data()};
  }

  /// Whether the cache, when it has `offset` tokens, holds the block: some query at `offset` or
  /// later sees something of it, or it is kept.
  bool holds(size_t block, int64_t offset) const;
  /// Block i holds positions [64 i, 64 i + 64); null if given back.
  const std::byte* block(size_t index) const { return addresses_[index]; }
  size_t blocks() const { return blocks_.size(); }
  /// After restore; null if not held.
  std::byte* restored_block(size_t index) { return addresses_[index]; }

 private:
  AttentionCache(const AttentionCache& other);
  bool pending() const { return precision_.changes() && !converted_; }
  BlockPool& pool() const { return *pool_; }
  /// Whether the window of a query at `position` or later reaches the block.
  bool visible_from(size_t block, int64_t position) const;
  void drop(size_t index) noexcept;
  void drop_from(size_t count) noexcept;

  const LayerSpec spec_;
  const LayerPrecision precision_;
  BlockPools* pools_;
  BlockPool* pool_;  // of the current encoding
  bool converted_ = false;
  std::vector<BlockId> blocks_;  // UINT32_MAX = given back
  std::vector<std::byte*> addresses_;
  size_t window_front_ = 0;  // blocks before it are given back unless kept
};

}  // namespace cohort::kv
