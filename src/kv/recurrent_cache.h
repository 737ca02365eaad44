#pragma once

#include "kernels/cpu/kv_block.h"
#include "kv/layer_cache.h"

namespace cohort::kv {

/// What a recurrent layer (gated delta rule, short convolution) keeps, whatever came before.
struct RecurrentSpec {
  int conv_channels = 0;
  int conv_tokens = 0;  // last inputs of the convolution: its width less one
  int heads = 0;        // of the state, each [key_dim, value_dim]
  int key_dim = 0;
  int value_dim = 0;
  int open_width = 0;  // floats that the block form keeps of each token of the open block; 0 = none

  bool operator==(const RecurrentSpec&) const = default;
  size_t conv_floats() const { return static_cast<size_t>(conv_tokens) * conv_channels; }
  size_t state_floats() const { return static_cast<size_t>(heads) * key_dim * value_dim; }
  size_t open_floats(int64_t offset) const {
    return static_cast<size_t>(offset % kernels::cpu::kBlockTokens) * open_width;
  }
};

/// The state after some tokens, f32. The block form of a recurrence advances `state` by whole
/// blocks of the 64-token grid, and keeps the inputs of the open block: so chunks change no bit.
struct RecurrentState {
  std::vector<float> conv;   // [conv_tokens, conv_channels], the latest last
  std::vector<float> state;  // [heads, key_dim, value_dim]
  std::vector<float> open;   // [offset % 64, open_width]
};

/// State of fixed size. A forward reads current() and writes what follows to next(); commit makes
/// that current. It cannot be cut back, only kept: clones share the state.
class RecurrentCache final : public LayerCache {
 public:
  explicit RecurrentCache(const RecurrentSpec& spec);

  std::string signature() const override;
  void reserve(int64_t tokens) override;
  void commit(int64_t tokens) noexcept override;
  int64_t trim_floor() const override { return offset_; }
  void trim(int64_t offset) override;
  void restore(int64_t offset, int64_t minimum_reusable_offset) override;
  std::unique_ptr<LayerCache> clone() const override;
  size_t bytes_per_token() const override { return 0; }
  std::vector<std::span<const std::byte>> arrays() const override;
  void check_integrity(BlockCensus& census) const override;

  const RecurrentSpec& spec() const { return spec_; }
  const RecurrentState& current() const { return *current_; }
  /// Starts as a copy of nothing: zeros of the right sizes, `open` for the offset after the
  /// reserved tokens. Valid from reserve until commit.
  RecurrentState& next() { return *next_; }
  /// After restore, until the first clone. Starts as zeros of the right sizes.
  RecurrentState& restored_state() { return *current_; }

 private:
  RecurrentState sized(int64_t offset) const;

  const RecurrentSpec spec_;
  std::shared_ptr<RecurrentState> current_;  // changed by its reader only
  std::shared_ptr<RecurrentState> next_;     // null unless reserved
};

}  // namespace cohort::kv
