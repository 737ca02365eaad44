#pragma once

#include <memory>

#include "engine/forward.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/stream.h"
#include "kv/row_cache.h"

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
};

}  // namespace cohort::engine
