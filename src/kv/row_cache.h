#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kv/block_pool.h"

namespace cohort::kv {

/// What one attention layer keeps per token.
struct LayerSpec {
  kernels::cpu::KvGeometry geometry;
  int64_t window = 0;  // keys a query sees, itself included; 0 = all
};

/// K and V of one layer and one row: blocks of 64 tokens aligned to position 0. Blocks that no
/// later query can see are given back.
///   thread  engine
class AttentionCache {
 public:
  AttentionCache(const LayerSpec& spec, BlockPool& pool) : window_(spec.window), pool_(&pool) {}
  ~AttentionCache();
  AttentionCache(AttentionCache&& other) noexcept;
  AttentionCache& operator=(AttentionCache&&) = delete;

  /// Makes room for the positions below `end`.
  void reserve(int64_t end);
  /// Forgets what is no longer visible from `position` on, and blocks past it.
  void settle(int64_t position);
  /// Block i holds positions [64 i, 64 i + 64); null if given back. Valid until the next reserve.
  std::byte* const* blocks() const { return blocks_.data(); }

 private:
  int64_t window_;
  BlockPool* pool_;
  std::vector<std::byte*> blocks_;
  size_t released_ = 0;  // leading blocks given back
};

/// All layer caches of one row, from birth to retirement. `offset` tokens are committed; a forward
/// writes behind it and is undone by not committing.
///   thread  engine
class RowCache {
 public:
  explicit RowCache(std::vector<AttentionCache> layers) : layers_(std::move(layers)) {}

  int64_t offset() const { return offset_; }
  AttentionCache& layer(size_t index) { return layers_[index]; }
  /// Makes room for `tokens` more in every layer.
  void reserve(int64_t tokens);
  void commit(int64_t tokens);

 private:
  std::vector<AttentionCache> layers_;
  int64_t offset_ = 0;
};

/// The block pools of one model; makes the caches of new rows.
///   thread  engine
class KvMemory {
 public:
  explicit KvMemory(std::vector<LayerSpec> layers);

  /// The caches refer to the pools: they must not outlive this object.
  RowCache new_row();
  size_t used_bytes() const;
  /// Bytes that one more token takes over all layers (ignoring windows).
  size_t bytes_per_token() const;

 private:
  std::vector<LayerSpec> layers_;
  std::map<size_t, std::unique_ptr<BlockPool>> pools_;  // by block size
};

}  // namespace cohort::kv
