#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cpu/packed_matrix.h"

namespace cohort::kv {

/// Memory blocks of one size, recycled. Contents are undefined.
///   thread  engine
class BlockPool {
 public:
  explicit BlockPool(size_t block_bytes) : block_bytes_(block_bytes) {}

  std::byte* take();
  void give_back(std::byte* block) { free_.push_back(block); }

  size_t total_blocks() const { return slabs_.size() * kSlabBlocks; }
  size_t used_blocks() const { return total_blocks() - free_.size(); }

 private:
  static constexpr size_t kSlabBlocks = 16;

  const size_t block_bytes_;
  std::vector<kernels::cpu::AlignedBuffer> slabs_;
  std::vector<std::byte*> free_;
};

}  // namespace cohort::kv
