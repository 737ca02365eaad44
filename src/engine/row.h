#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/stream.h"
#include "kv/row_cache.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace cohort::engine {

/// A request that was accepted, with every choice made; becomes a row on the engine thread.
struct Submission {
  Request request;
  SamplingParams sampling;
  int64_t max_tokens = 0;      // of the answer; prompt + max_tokens fits the context
  kv::RowPrecision precision;  // of its caches
  std::shared_ptr<Stream> stream;
};

/// One sequence being generated.
///   thread  engine
class Row {
 public:
  Row(RowId id, Submission submission, const text::Tokenizer& tokenizer,
      const std::set<int32_t>& end_tokens, kv::RowCache cache,
      const kernels::cpu::Kernels& kernels);

  RowId id() const { return id_; }
  kv::RowCache& cache() { return cache_; }
  Stream& stream() { return *stream_; }
  /// Known tokens that are not in the caches yet: at least 1.
  std::span<const int32_t> pending() const {
    return std::span(ids_).subspan(static_cast<size_t>(cache_.offset()));
  }
  RowState state() const;
  /// Whether it has produced a token: a prompt may be, or end in, a single token, too.
  bool answering() const { return ids_.size() > prompt_tokens_; }

  /// Picks the next token from this row's logits; changes nothing that a retry would see.
  int32_t sample(std::span<float> logits);
  /// Takes a sampled token: counts it, publishes what text became certain.
  ///   returns  true if the row is finished
  bool take(int32_t token);

 private:
  void publish(TokenEvent event);

  const RowId id_;
  const std::set<int32_t>& end_tokens_;
  const bool ignore_eos_;
  std::vector<int32_t> ids_;  // prompt, then answer
  const size_t prompt_tokens_;
  const int64_t max_tokens_;
  std::shared_ptr<Stream> stream_;
  kv::RowCache cache_;
  Sampler sampler_;
  text::Detokenizer detokenizer_;
  text::StopMatcher stops_;
};

}  // namespace cohort::engine
