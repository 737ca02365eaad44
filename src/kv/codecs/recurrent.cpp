// Recurrent state: the three arrays of RecurrentState, f32.

#include "kernels/cpu/kv_block.h"
#include "kv/codecs/codec.h"
#include "kv/recurrent_cache.h"

namespace cohort::kv {
namespace {

class RecurrentCodec final : public CacheCodec {
 public:
  void describe(const LayerCache& cache, CacheState state, CacheLayout& layout) const override {
    const RecurrentSpec& spec = static_cast<const RecurrentCache&>(cache).spec();
    const int64_t open = state.offset % kernels::cpu::kBlockTokens;
    layout.tensors = {
        {"conv", SavedType::kF32, {spec.conv_tokens, spec.conv_channels}},
        {"state", SavedType::kF32, {spec.heads, spec.key_dim, spec.value_dim}},
        {"open", SavedType::kF32, {open, spec.open_width}},
    };
  }

  void write(const LayerCache& cache, size_t index, const Sink& sink) const override {
    sink(cache.arrays()[index]);
  }

  void read(LayerCache& cache, size_t index, const Source& source) const override {
    RecurrentState& state = static_cast<RecurrentCache&>(cache).restored_state();
    std::vector<float>* const arrays[] = {&state.conv, &state.state, &state.open};
    source(std::as_writable_bytes(std::span(*arrays[index])));
  }
};

}  // namespace

const CacheCodec& recurrent_codec() {
  static const RecurrentCodec codec;
  return codec;
}

}  // namespace cohort::kv
