#pragma once

#include <variant>

#include "kv/attention_cache.h"
#include "kv/recurrent_cache.h"

namespace cohort::kv {

using AnyLayerSpec = std::variant<LayerSpec, RecurrentSpec>;

/// How the layers of a row store their tokens, chosen when the row is made (see kv/scheme.h).
/// Entries of recurrent layers mean nothing.
using RowPrecision = std::vector<LayerPrecision>;

/// All layer caches of one row, from birth to retirement; they move together.
///   thread  engine
class RowCache {
 public:
  explicit RowCache(std::vector<std::unique_ptr<LayerCache>> layers) : layers_(std::move(layers)) {}

  int64_t offset() const { return layers_.empty() ? 0 : layers_.front()->offset(); }
  size_t layers() const { return layers_.size(); }
  LayerCache& layer(size_t index) { return *layers_[index]; }
  const LayerCache& layer(size_t index) const { return *layers_[index]; }
  /// Of a layer whose spec is a LayerSpec.
  AttentionCache& attention(size_t index) { return static_cast<AttentionCache&>(*layers_[index]); }

  /// See LayerCache; over all layers.
  void reserve(int64_t tokens);
  void commit(int64_t tokens) noexcept;
  int64_t max_append_tokens() const;
  /// Layer by layer, so that at most one layer is held twice.
  void maintain(kernels::cpu::Cpu& cpu);
  int64_t trim_floor() const;
  void trim(int64_t offset);
  int64_t minimum_reusable_offset() const;
  void restore(int64_t offset, int64_t minimum_reusable_offset);
  RowCache clone() const;
  size_t bytes_per_token() const;
  void check_integrity(BlockCensus& census) const;

 private:
  std::vector<std::unique_ptr<LayerCache>> layers_;
};

/// The memory of one model's rows.
///   thread  engine
class KvMemory {
 public:
  /// `most_bytes` bounds what all rows may hold together.
  ///   copy  of blocks; empty = they are memory of this process. On a device, rows are dense, and
  ///         nobody asks for the bytes of their caches
  explicit KvMemory(std::vector<AnyLayerSpec> layers, size_t most_bytes = SIZE_MAX,
                    kernels::cpu::BlockCopy copy = {});

  /// The caches refer to the pools: they must not outlive this object.
  RowCache new_row(const RowPrecision& precision);
  const std::vector<AnyLayerSpec>& layers() const { return layers_; }
  BlockPools& pools() { return pools_; }
  const BlockPools& pools() const { return pools_; }

 private:
  std::vector<AnyLayerSpec> layers_;
  BlockPools pools_;
};

}  // namespace cohort::kv
