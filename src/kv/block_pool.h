#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "kernels/cpu/kv_block.h"
#include "kernels/cpu/packed_matrix.h"

namespace cohort::kv {

class BlockPool;

/// Bytes of blocks that all pools of a model may have in use together. What they hold is whole
/// slabs: a few blocks of each size more.
struct MemoryLimit {
  size_t most_bytes = SIZE_MAX;
  size_t used_bytes = 0;
  size_t held_bytes = 0;
  std::vector<BlockPool*> pools = {};  // that share it
};

using BlockId = uint32_t;

/// Reference-counted memory blocks of one size. Contents of a fresh block are undefined. Memory is
/// taken and given back in slabs, the lowest first, so that a pool that shrinks frees its end.
/// Blocks of a device have their contents there, under their ids; what they take here is addresses,
/// which nothing touches, and no memory.
///   thread  engine
class BlockPool {
 public:
  /// `limit` outlives the pool.
  ///   copy  as for KvMemory
  BlockPool(size_t block_bytes, MemoryLimit& limit, kernels::cpu::BlockCopy copy = {});
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// A block with one reference.
  ///   throws  Error{kOverloaded} beyond the limit
  BlockId take();
  void share(BlockId block) noexcept { ++references_[block]; }
  void release(BlockId block) noexcept;
  /// Frees the memory of slabs without used blocks, except `reserve` of them.
  void shrink(size_t reserve) noexcept;
  /// Frees the memory of all that is free; of slabs in part, but not their addresses.
  void trim() noexcept;
  /// The contents of `from` become those of `to`, too.
  void copy(BlockId from, BlockId to);

  std::byte* address(BlockId block) const {
    return slabs_[block / kSlabBlocks].memory.data() + block % kSlabBlocks * block_bytes_;
  }
  uint32_t references(BlockId block) const { return references_[block]; }
  size_t block_bytes() const { return block_bytes_; }
  size_t used_blocks() const { return used_blocks_; }
  size_t used_bytes() const { return used_blocks_ * block_bytes_; }
  /// Memory taken from the system.
  size_t held_bytes() const { return slabs_with_memory_ * slab_bytes(); }
  /// Ids that exist: one more than the highest ever used.
  size_t size() const { return references_.size(); }

  /// Throws Error{kInternal} unless the counts in use add up.
  void check_integrity() const;

 private:
  static constexpr size_t kSlabBlocks = 16;
  struct Slab {
    kernels::cpu::AlignedBuffer memory;  // empty while no block of it is used, mostly
    uint32_t used = 0;                   // a bit per block
    bool full() const { return used == (1u << kSlabBlocks) - 1; }
  };

  size_t slab_bytes() const { return block_bytes_ * kSlabBlocks; }
  /// The lowest slab with a free block, with its memory.
  size_t open_slab();
  void give_memory(Slab& slab);

  const size_t block_bytes_;
  MemoryLimit& limit_;
  const kernels::cpu::BlockCopy copy_;
  std::vector<Slab> slabs_;
  std::vector<uint32_t> references_;  // of each block
  size_t first_open_ = 0;             // no slab before it has a free block
  size_t used_blocks_ = 0;
  size_t used_slabs_ = 0;
  size_t slabs_with_memory_ = 0;
};

/// References to the blocks of every pool, counted by those who hold them.
using BlockCensus = std::map<const BlockPool*, std::vector<uint32_t>>;

/// The pools of a model, one per block size. They outlive the caches.
class BlockPools {
 public:
  explicit BlockPools(size_t most_bytes = SIZE_MAX, kernels::cpu::BlockCopy copy = {})
      : limit_{most_bytes}, copy_(std::move(copy)) {}
  BlockPools(const BlockPools&) = delete;  // pools refer to the limit
  BlockPools& operator=(const BlockPools&) = delete;
  BlockPool& of(size_t block_bytes);

  size_t used_bytes() const { return limit_.used_bytes; }
  size_t held_bytes() const { return limit_.held_bytes; }
  /// Frees what is held for the next row.
  void trim() noexcept {
    for (auto& [size, pool] : pools_) pool.trim();
  }
  /// Throws Error{kInternal} unless the references counted in `census` are all there are.
  void check_integrity(const BlockCensus& census) const;

 private:
  MemoryLimit limit_;
  const kernels::cpu::BlockCopy copy_;
  std::map<size_t, BlockPool> pools_;
};

}  // namespace cohort::kv
