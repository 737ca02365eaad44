#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/logprobs.h"
#include "engine/plan.h"
#include "engine/prefill_policy.h"
#include "engine/submission.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace cohort::engine {

/// What rows read of the model that they belong to. Outlives them.
struct RowContext {
  const text::Tokenizer& tokenizer;
  const std::set<int32_t>& end_tokens;
  const kernels::cpu::Kernels& kernels;
  /// Whether some state cannot be cut back: then what is kept helps at exactly its own offset, so
  /// it is kept where the next prompt may go another way, see Row::next_checkpoint.
  bool exact_state = false;
};

/// What became of one row's logits.
struct Sampled {
  int32_t token = 0;
  std::optional<ScoredToken> score;
};

/// One sequence being generated: one choice of a request.
///   thread  engine
class Row {
 public:
  /// A fresh row that will be choice 0, and become all the others when its prompt is read.
  Row(RowId id, std::shared_ptr<const Submission> submission, const RowContext& context,
      kv::RowCache cache);
  /// Another choice of the same request, from where `first` stands in its prompt: shares its cache
  /// until one of the two writes.
  static Row fork(RowId id, const Row& first, int choice);

  RowId id() const { return id_; }
  const Submission& submission() const { return *submission_; }
  int choice() const { return choice_; }
  kv::RowCache& cache() { return cache_; }
  const kv::RowCache& cache() const { return cache_; }
  Stream& stream() { return *submission_->stream; }
  /// Known tokens that are not in the caches yet: at least 1.
  std::span<const int32_t> pending() const {
    return std::span(ids_).subspan(static_cast<size_t>(cache_.offset()));
  }
  std::span<const int32_t> ids() const { return ids_; }
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  /// Of its cache, tokens that it shares with another choice, whose memory they are.
  int64_t shared_tokens() const { return shared_tokens_; }
  /// As long as it may ever become.
  int64_t most_tokens() const;
  /// Whether it has produced a token: a prompt may be, or end in, a single token, too.
  bool answering() const { return answered() > 0; }
  int64_t answered() const {
    return tokens() - static_cast<int64_t>(submission_->request.prompt.size());
  }

  /// Plans the next step of a row that is between steps.
  ///   throws  Error{kUnsupported} if the precision changes inside of an atomic step
  void plan_step(const PrefillPolicy& policy);
  /// Its step has ended, so memory may be given back.
  bool step_ended() const { return cache_.offset() == step_.end; }
  RowState state() const;
  void commit(int64_t tokens) noexcept;
  void passed_over() { ++waited_; }

  /// Its prompt is read as far as all choices share it, and these are still to be made.
  bool forks_now() const { return choices_left_ > 0 && at_fork(); }
  /// One token before its prompt ends, or as near as a step may end.
  bool at_fork() const { return cache_.offset() == fork_at_; }
  void forked() {
    choices_left_ = 0;
    shared_tokens_ = cache_.offset();
  }
  /// Of the rows that are worked on at once: its own and those of the choices still to be made.
  size_t places() const { return 1 + static_cast<size_t>(choices_left_); }

  static constexpr int64_t kCheckpointEvery = 512;
  ///   source  mlx-bun 0.5.0, prefill-cohort (the least boundary of a snapshot)
  static constexpr int64_t kLeastCheckpoint = 256;
  /// Its prompt is read as far as is worth keeping for others; true once.
  bool checkpoint_due();
  /// What it holds now is worth a file, too: its end, which will get one, does not serve instead.
  bool checkpoint_outlasts() const;

  /// Gives up its memory; what it had said and drawn stays. Its tokens are read again later.
  ///   fresh    an empty cache of the same kind
  ///   returns  what it had
  kv::RowCache park(kv::RowCache fresh);
  /// Goes on with a cache that holds a prefix of its tokens.
  void resume(kv::RowCache cache);
  bool parked() const { return parked_; }
  /// Parked, and its consumer has room: it goes on when memory allows.
  bool resumable() const { return parked_ && !submission_->stream->full(); }
  /// Its prefix is being read from SSD; what it has otherwise is kept in case that fails.
  void await(uint64_t ticket) { ticket_ = ticket; }
  void restored(std::optional<kv::RowCache> cache);
  uint64_t ticket() const { return ticket_; }
  /// May be in a forward.
  bool active() const { return !parked_ && ticket_ == 0 && !ended_; }

  /// The row is over; it is to be swept away.
  void end() { ended_ = true; }
  bool ended() const { return ended_; }

  /// Picks the next token from this row's logits, which change; changes nothing that a retry would
  /// see.  thread  any one
  Sampled sample(std::span<float> logits);
  /// Takes a sampled token and counts it.
  ///   returns  what became certain with it, to be published
  TokenEvent take(Sampled sampled, Clock::time_point now);
  /// Takes what an earlier run of its request has left of the answer, up to where it ends.
  ///   returns  all that became certain with it, in one
  TokenEvent replay(Clock::time_point now);
  /// When it took its last token.
  Clock::time_point last_token() const { return last_token_; }

 private:
  Row(RowId id, std::shared_ptr<const Submission> submission, int choice, const RowContext& context,
      kv::RowCache cache);

  /// The first position behind `position` whose state is worth keeping, where a step ends; 0 =
  /// none. Of state that can be cut back, the end of the prompt; of other state every
  /// kCheckpointEvery tokens, one short of the end, and where the first and the last turn of a
  /// conversation end: others have its system prompt, and templates may write the rest otherwise
  /// next time.
  int64_t next_checkpoint(int64_t position) const;

  const RowId id_;
  const std::shared_ptr<const Submission> submission_;
  const int choice_;
  const RowContext& context_;
  const int64_t fork_at_;
  const TokenSpan turn_ends_;  // the first and the last in the prompt, 0 = none
  int choices_left_;           // that are to be made of this row
  std::vector<int32_t> ids_;   // prompt, then answer
  kv::RowCache cache_;
  int64_t checkpointed_;  // the last checkpoint, or where it began
  int64_t shared_tokens_ = 0;
  PrefillStep step_;
  int64_t waited_ = 0;
  Clock::time_point last_token_ = {};
  bool parked_ = false;
  uint64_t ticket_ = 0;  // 0 = nothing is awaited
  bool ended_ = false;
  Sampler sampler_;
  text::Detokenizer detokenizer_;
  text::StopMatcher stops_;
};

}  // namespace cohort::engine
