#include "kv/block_pool.h"

namespace cohort::kv {

std::byte* BlockPool::take() {
  if (free_.empty()) {
    slabs_.emplace_back(block_bytes_ * kSlabBlocks);
    free_.reserve(total_blocks());
    for (size_t i = kSlabBlocks; i-- > 0;) free_.push_back(slabs_.back().data() + i * block_bytes_);
  }
  std::byte* block = free_.back();
  free_.pop_back();
  return block;
}

}  // namespace cohort::kv
