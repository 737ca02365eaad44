#include "kv/block_pool.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace cohort::kv {

BlockPool::BlockPool(size_t block_bytes, MemoryLimit& limit, kernels::cpu::BlockCopy copy)
    : block_bytes_(block_bytes), limit_(limit), copy_(std::move(copy)) {
  limit_.pools.push_back(this);
}

BlockPool::~BlockPool() {
  limit_.held_bytes -= held_bytes();
  limit_.used_bytes -= used_bytes();
  std::erase(limit_.pools, this);
}

BlockId BlockPool::take() {
  if (limit_.most_bytes < limit_.used_bytes + block_bytes_) {
    fail(ErrorKind::kOverloaded,
         "no room for more keys and values: {:.1f} of {:.1f} MB are in use; try again later or "
         "raise --kv-memory-mb",
         static_cast<double>(limit_.used_bytes) / (1 << 20),
         static_cast<double>(limit_.most_bytes) / (1 << 20));
  }
  const size_t index = open_slab();
  Slab& slab = slabs_[index];
  if (slab.used == 0) ++used_slabs_;
  const auto slot = static_cast<uint32_t>(std::countr_one(slab.used));
  slab.used |= 1u << slot;
  ++used_blocks_;
  limit_.used_bytes += block_bytes_;
  const auto block = static_cast<BlockId>(index * kSlabBlocks + slot);
  references_[block] = 1;
  return block;
}

size_t BlockPool::open_slab() {
  while (first_open_ < slabs_.size() && slabs_[first_open_].full()) ++first_open_;
  if (first_open_ == slabs_.size()) {
    references_.resize(references_.size() + kSlabBlocks);
    slabs_.emplace_back();
  }
  if (slabs_[first_open_].memory.size() == 0) give_memory(slabs_[first_open_]);
  return first_open_;
}

void BlockPool::give_memory(Slab& slab) {
  if (limit_.most_bytes < limit_.held_bytes + slab_bytes()) {
    for (BlockPool* pool : limit_.pools) pool->shrink(0);  // what they hold for their next row
  }
  slab.memory = kernels::cpu::AlignedBuffer(slab_bytes());
  limit_.held_bytes += slab_bytes();
  ++slabs_with_memory_;
}

void BlockPool::release(BlockId block) noexcept {
  if (--references_[block] > 0) return;
  Slab& slab = slabs_[block / kSlabBlocks];
  slab.used &= ~(1u << block % kSlabBlocks);
  --used_blocks_;
  limit_.used_bytes -= block_bytes_;
  first_open_ = std::min<size_t>(first_open_, block / kSlabBlocks);
  if (slab.used != 0) return;
  --used_slabs_;
  // A row that ends and one that begins should not pass memory through the system.
  shrink(used_slabs_ / 8 + 4);
}

void BlockPool::copy(BlockId from, BlockId to) {
  if (copy_) {
    copy_(block_bytes_, from, to);
  } else {
    std::memcpy(address(to), address(from), block_bytes_);
  }
}

void BlockPool::shrink(size_t reserve) noexcept {
  for (size_t i = slabs_.size(); i-- > 0 && slabs_with_memory_ > used_slabs_ + reserve;) {
    if (slabs_[i].used != 0 || slabs_[i].memory.size() == 0) continue;
    slabs_[i].memory = {};
    limit_.held_bytes -= slab_bytes();
    --slabs_with_memory_;
  }
}

void BlockPool::trim() noexcept {
  shrink(0);
  for (Slab& slab : slabs_) {
    for (size_t slot = 0; slot < kSlabBlocks && slab.memory.size() > 0; ++slot) {
      if ((slab.used >> slot & 1) == 0) slab.memory.drop(slot * block_bytes_, block_bytes_);
    }
  }
}

void BlockPool::check_integrity() const {
  size_t used = 0, used_slabs = 0, with_memory = 0;
  for (size_t i = 0; i < slabs_.size(); ++i) {
    const Slab& slab = slabs_[i];
    used += static_cast<size_t>(std::popcount(slab.used));
    used_slabs += slab.used != 0;
    with_memory += slab.memory.size() != 0;
    check(slab.used == 0 || slab.memory.size() == slab_bytes(), "used blocks have memory");
    check(i >= first_open_ || slab.full(), "slabs before it are full");
    for (size_t slot = 0; slot < kSlabBlocks; ++slot) {
      const bool marked = (slab.used >> slot & 1) != 0;
      check(marked == (references_[i * kSlabBlocks + slot] > 0), "used blocks have references");
    }
  }
  check(used == used_blocks_ && used_slabs == used_slabs_ && with_memory == slabs_with_memory_,
        "a block pool's counts add up");
}

BlockPool& BlockPools::of(size_t block_bytes) {
  return pools_.try_emplace(block_bytes, block_bytes, limit_, copy_).first->second;
}

void BlockPools::check_integrity(const BlockCensus& census) const {
  size_t held = 0, used_bytes = 0;
  for (const auto& [size, pool] : pools_) {
    pool.check_integrity();
    held += pool.held_bytes();
    used_bytes += pool.used_bytes();
    const auto counted = census.find(&pool);
    for (BlockId block = 0; block < pool.size(); ++block) {
      const bool seen = counted != census.end() && block < counted->second.size();
      check(pool.references(block) == (seen ? counted->second[block] : 0),
            "every reference to a block is held by a cache");
    }
  }
  check(held == limit_.held_bytes && used_bytes == limit_.used_bytes, "the pools' memory adds up");
}

}  // namespace cohort::kv
