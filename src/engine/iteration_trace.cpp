#include "engine/iteration_trace.h"

namespace cohort::engine {

void trace_iteration(std::span<const TracedShare> shares, const IterationTimes& times) {
  const uint64_t work_id = next_work_id();
  const auto batch = static_cast<int32_t>(shares.size());
  const ForwardTimes& forward = times.forward;
  for (const TracedShare& share : shares) {
    if (share.trace == nullptr) continue;
    const auto add = [&](const char* name, Clock::time_point begin, Clock::time_point end) {
      share.trace->add({name, begin, end, work_id, batch, share.tokens});
    };
    if (share.decodes) {
      add("decode", times.planned, forward.projected);
      add("sample", forward.projected, times.sampled);
      add("publish", times.sampled, times.committed);
      continue;
    }
    add("prefill.row_sync", times.planned, times.reserved);
    add("prefill.forward", forward.begun, forward.built);
    add("prefill.evaluate", forward.built, forward.evaluated);
    if (!share.samples) continue;
    add("prefill.project", forward.evaluated, forward.projected);
    add("prefill.complete", forward.projected, times.committed);
  }
}

}  // namespace cohort::engine
