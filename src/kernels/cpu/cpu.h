#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace cohort::kernels::cpu {

/// Where kernels run: threads, instruction set and scratch memory. Passed down, never global.
///   thread  one kernel at a time (the MLX stream thread, or a test)
class Cpu {
 public:
  /// `threads` <= 0: one for each of the usable_cores().
  explicit Cpu(int threads, const Kernels& kernels = best_kernels());

  ThreadPool& pool() { return pool_; }
  const Kernels& kernels() const { return kernels_; }
  /// Scratch memory of at least `bytes`, contents undefined; valid until the next call.
  std::byte* step_scratch(size_t bytes) { return at_least(step_scratch_, bytes); }
  /// The same for a layer, whose steps need some, too.
  std::byte* layer_scratch(size_t bytes) { return at_least(layer_scratch_, bytes); }
  /// The same for a run of layers.
  std::byte* forward_scratch(size_t bytes) { return at_least(forward_scratch_, bytes); }
  /// Gives all of it back.
  void release_memory() {
    step_scratch_ = {};
    layer_scratch_ = {};
    forward_scratch_ = {};
  }

 private:
  static std::byte* at_least(AlignedBuffer& buffer, size_t bytes);

  ThreadPool pool_;
  const Kernels& kernels_;
  AlignedBuffer step_scratch_, layer_scratch_, forward_scratch_;
};

/// Hands out aligned pieces of one scratch buffer. Declare the pieces, then `bind` once.
class ScratchPlan {
 public:
  template <class T>
  void add(T*& pointer, size_t count) {
    pieces_.push_back(
        {[](void* target, std::byte* at) { *static_cast<T**>(target) = reinterpret_cast<T*>(at); },
         static_cast<void*>(&pointer), bytes_});
    bytes_ += (count * sizeof(T) + 63) / 64 * 64;
  }
  size_t bytes() const { return bytes_; }
  void bind(std::byte* base) const {
    for (const Piece& piece : pieces_) piece.set(piece.target, base + piece.offset);
  }

 private:
  struct Piece {
    void (*set)(void*, std::byte*);
    void* target;
    size_t offset;
  };
  std::vector<Piece> pieces_;
  size_t bytes_ = 0;
};

}  // namespace cohort::kernels::cpu
