#include "model/feed.h"

#include <algorithm>

namespace cohort::model {

void feed(kernels::cpu::Cpu& cpu, kv::RowCache& cache, std::span<const int32_t> ids,
          int64_t chunk_tokens, const std::function<void(const TokenGroup& group)>& forward) {
  while (!ids.empty()) {
    const int64_t count =
        std::min({static_cast<int64_t>(ids.size()), chunk_tokens, cache.max_append_tokens()});
    forward({ids.first(static_cast<size_t>(count)), cache});
    cache.commit(count);
    cache.maintain(cpu);
    ids = ids.subspan(static_cast<size_t>(count));
  }
}

}  // namespace cohort::model
