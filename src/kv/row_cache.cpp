#include "kv/row_cache.h"

#include <algorithm>
#include <utility>

namespace cohort::kv {

using kernels::cpu::kBlockTokens;

AttentionCache::~AttentionCache() {
  for (std::byte* block : blocks_) {
    if (block != nullptr) pool_->give_back(block);
  }
}

AttentionCache::AttentionCache(AttentionCache&& other) noexcept
    : window_(other.window_),
      pool_(other.pool_),
      blocks_(std::exchange(other.blocks_, {})),
      released_(std::exchange(other.released_, 0)) {}

void AttentionCache::reserve(int64_t end) {
  const auto needed = static_cast<size_t>((end + kBlockTokens - 1) / kBlockTokens);
  while (blocks_.size() < needed) blocks_.push_back(pool_->take());
}

void AttentionCache::settle(int64_t position) {
  const auto kept = static_cast<size_t>((position + kBlockTokens - 1) / kBlockTokens);
  while (blocks_.size() > kept) {
    pool_->give_back(blocks_.back());
    blocks_.pop_back();
  }
  if (window_ == 0) return;
  const int64_t first_visible = std::max<int64_t>(0, position - window_ + 1);
  for (; released_ < static_cast<size_t>(first_visible / kBlockTokens); ++released_) {
    pool_->give_back(std::exchange(blocks_[released_], nullptr));
  }
}

void RowCache::reserve(int64_t tokens) {
  for (AttentionCache& layer : layers_) layer.reserve(offset_ + tokens);
}

void RowCache::commit(int64_t tokens) {
  offset_ += tokens;
  for (AttentionCache& layer : layers_) layer.settle(offset_);
}

KvMemory::KvMemory(std::vector<LayerSpec> layers) : layers_(std::move(layers)) {
  for (const LayerSpec& spec : layers_) {
    const size_t bytes = spec.geometry.block_bytes();
    if (!pools_.contains(bytes)) pools_.emplace(bytes, std::make_unique<BlockPool>(bytes));
  }
}

RowCache KvMemory::new_row() {
  std::vector<AttentionCache> caches;
  caches.reserve(layers_.size());
  for (const LayerSpec& spec : layers_) {
    caches.emplace_back(spec, *pools_.at(spec.geometry.block_bytes()));
  }
  return RowCache(std::move(caches));
}

size_t KvMemory::used_bytes() const {
  size_t bytes = 0;
  for (const auto& [block_bytes, pool] : pools_) bytes += block_bytes * pool->used_blocks();
  return bytes;
}

size_t KvMemory::bytes_per_token() const {
  size_t bytes = 0;
  for (const LayerSpec& spec : layers_) bytes += spec.geometry.block_bytes() / kBlockTokens;
  return bytes;
}

}  // namespace cohort::kv
