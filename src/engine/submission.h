#pragma once

#include <memory>
#include <optional>

#include "engine/forward.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/stream.h"
#include "kv/row_cache.h"
#include "store/ssd/saved_prefix.h"

namespace cohort::engine {

/// A request that was accepted, with every choice made; becomes rows on the engine thread.
struct Submission {
  Request request;
  SamplingParams sampling;     // of choice 0
  int64_t max_tokens = 0;      // of an answer; prompt + max_tokens fits the context
  kv::RowPrecision precision;  // of the caches of its rows
  std::shared_ptr<Stream> stream;
  Clock::time_point arrived = {};
  std::string space = {};  // of its prefixes, see store::Namespace
  /// Set if checkpoints of its only answer are to be kept; its `answer` is what an earlier run has
  /// left, of which this one gives the same from its beginning.
  std::optional<store::Generation> generation = {};
  int64_t passed = 0;  // cost of those that passed it in the waiting line

  int64_t replayed_tokens() const {
    return generation ? static_cast<int64_t>(generation->answer.size()) : 0;
  }
};

}  // namespace cohort::engine
