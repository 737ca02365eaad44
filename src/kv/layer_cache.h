#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/block_pool.h"

namespace cohort::kernels::cpu {
class Cpu;
}

namespace cohort::kv {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

/// One layer's state for one row. `offset` tokens are committed; a forward writes behind them, and
/// what it wrote is forgotten by not committing.
///   thread  engine
class LayerCache {
 public:
  virtual ~LayerCache() = default;

  /// Names everything that decides the bytes of the state and what may be done with it; caches of
  /// equal signature may take each other's place.
  virtual std::string signature() const = 0;

  int64_t offset() const { return offset_; }
  /// Makes room for `tokens` behind the offset. May be repeated.
  ///   throws  Error{kInternal} if tokens > max_append_tokens(), kOverloaded without memory
  virtual void reserve(int64_t tokens) = 0;
  /// Makes the first `tokens` of what was reserved and written part of the state; of a recurrent
  /// cache all of them or none.
  virtual void commit(int64_t tokens) noexcept = 0;
  /// The longest append before the state changes its precision: such a change happens at one exact
  /// offset, whatever chunks lead there.
  virtual int64_t max_append_tokens() const { return kNoLimit; }
  /// Changes the precision if the offset is where that is due.
  virtual void maintain(kernels::cpu::Cpu&) {}

  /// The least offset that the state can be cut back to; offset() if it cannot be cut.
  virtual int64_t trim_floor() const = 0;
  /// Cuts back to `offset` in [trim_floor(), offset()].
  virtual void trim(int64_t offset) = 0;
  /// Below it, the state is not what a row that stopped there would have.
  virtual int64_t minimum_reusable_offset() const { return 0; }

  /// An empty cache becomes one of `offset` tokens whose contents are undefined, for a reader of
  /// saved caches to fill on any thread; a change of precision is done if it was due by
  /// `minimum_reusable_offset`.
  ///   throws  Error{kOverloaded} without memory; what was taken goes back with the cache
  virtual void restore(int64_t offset, int64_t minimum_reusable_offset) = 0;

  /// A cache of its own over the committed state; shares memory until one of the two writes. Made
  /// right after a commit or before a reserve, and destroyed on the engine thread.
  virtual std::unique_ptr<LayerCache> clone() const = 0;

  /// What one more token takes; 0 for state of fixed size.
  virtual size_t bytes_per_token() const = 0;
  /// The memory that holds the state, shared parts included.
  virtual std::vector<std::span<const std::byte>> arrays() const = 0;
  /// Throws Error{kInternal} if the cache contradicts itself; counts its references to blocks.
  virtual void check_integrity(BlockCensus& census) const = 0;

 protected:
  int64_t offset_ = 0;
};

/// Total of arrays().
size_t state_bytes(const LayerCache& cache);

}  // namespace cohort::kv
