#include "kv/codecs/codec.h"

#include <fmt/ranges.h>

#include "base/printable.h"

namespace cohort::kv {

using kernels::cpu::kBlockTokens;
using kernels::cpu::KvKind;

std::string words(const TensorSpec& tensor) {
  return fmt::format("{} {} [{}]", printable(tensor.name), info(tensor.type).name,
                     fmt::join(tensor.shape, ", "));
}

void describe_attention(const AttentionCache& cache, CacheState state,
                        boost::json::object& header) {
  const LayerSpec& spec = cache.spec();
  if (spec.window > 0) {
    int64_t first = kernels::cpu::blocks_for(state.offset);
    while (first > 0 && cache.holds(static_cast<size_t>(first - 1), state.offset)) --first;
    header["window"] = spec.window;
    header["keep"] = spec.keep;
    header["firstPosition"] = first * kBlockTokens;
  }
  if (cache.precision().changes()) {
    header["start"] = cache.precision().start;
    header["converted"] = state.converted;
  }
  const kernels::cpu::KvEncoding encoding = cache.geometry(state.converted).encoding;
  if (encoding.kind == KvKind::kAffine) header["bits"] = encoding.key_bits;
  if (encoding.kind == KvKind::kTurbo) {
    header["kBits"] = encoding.key_bits;
    header["vBits"] = encoding.value_bits;
  }
  if (encoding.group > 0) header["groupSize"] = encoding.group;
}

}  // namespace cohort::kv
