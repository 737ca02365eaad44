#include "engine/prefill_policy.h"

#include <algorithm>

namespace cohort::engine {

int64_t PrefillPolicy::chunk_at(int64_t position) const {
  if (exact || !workspace) return chunk;
  int64_t tokens = chunk;
  while (tokens / 2 >= kLeastChunk && workspace(tokens, position + tokens) > kMostWorkspace) {
    tokens /= 2;
  }
  return tokens;
}

PrefillStep next_step(const PrefillPolicy& policy, const PrefillRoute& route, int64_t position) {
  int64_t end = std::min(position + policy.chunk_at(position), route.tokens);
  if (policy.split_last_token && position < route.tokens - 1) end = std::min(end, route.tokens - 1);
  for (int64_t stop : route.stops) {
    if (stop > position) end = std::min(end, stop);
  }
  for (const TokenSpan& span : route.atomic) {
    if (span.begin <= position && position < span.end) return {span.end, true};
    if (span.begin > position) end = std::min(end, span.begin);
  }
  return {end, false};
}

}  // namespace cohort::engine
