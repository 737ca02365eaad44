#include "engine/row.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace cohort::engine {
namespace {

/// Choices share all of the prompt but its last token, whose logits each of them samples; and no
/// part of a step that must not be split.
int64_t fork_position(const Request& request) {
  int64_t position = static_cast<int64_t>(request.prompt.size()) - 1;
  for (const TokenSpan& span : request.atomic) {
    if (span.begin < position && position < span.end) position = span.begin;
  }
  return position;
}

/// The positions behind the first and the last end token.
TokenSpan find_turn_ends(std::span<const int32_t> prompt, const std::set<int32_t>& end_tokens) {
  TokenSpan ends;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (!end_tokens.contains(prompt[i])) continue;
    ends.end = static_cast<int64_t>(i) + 1;
    if (ends.begin == 0) ends.begin = ends.end;
  }
  return ends;
}

SamplingParams of_choice(SamplingParams params, int choice) {
  params.seed += static_cast<uint64_t>(choice);
  return params;
}

}  // namespace

Row::Row(RowId id, std::shared_ptr<const Submission> submission, int choice,
         const RowContext& context, kv::RowCache cache)
    : id_(id),
      submission_(std::move(submission)),
      choice_(choice),
      context_(context),
      fork_at_(fork_position(submission_->request)),
      turn_ends_(context.exact_state
                     ? find_turn_ends(submission_->request.prompt, context.end_tokens)
                     : TokenSpan{}),
      choices_left_(choice == 0 ? submission_->request.choices - 1 : 0),
      ids_(submission_->request.prompt),
      cache_(std::move(cache)),
      checkpointed_(cache_.offset()),
      sampler_(of_choice(submission_->sampling, choice), ids_, context.kernels),
      detokenizer_(context.tokenizer),
      stops_(submission_->request.stop) {}

Row::Row(RowId id, std::shared_ptr<const Submission> submission, const RowContext& context,
         kv::RowCache cache)
    : Row(id, std::move(submission), 0, context, std::move(cache)) {}

Row Row::fork(RowId id, const Row& first, int choice) {
  Row row(id, first.submission_, choice, first.context_, first.cache_.clone());
  row.shared_tokens_ = first.cache_.offset();
  return row;
}

int64_t Row::most_tokens() const {
  return static_cast<int64_t>(submission_->request.prompt.size()) + submission_->max_tokens;
}

void Row::plan_step(const PrefillPolicy& policy) {
  const int64_t at = cache_.offset();
  if (at < step_.end) return;
  const int64_t stops[] = {choices_left_ > 0 ? fork_at_ : 0, next_checkpoint(at)};
  step_ = next_step(policy, {tokens(), stops, submission_->request.atomic}, at);
  if (step_.atomic && step_.end - at > cache_.max_append_tokens()) {
    fail(ErrorKind::kUnsupported,
         "keys and values change their precision at token {}, inside of tokens {} to {} that must "
         "be read at once; start the server with another --kv-start",
         at + cache_.max_append_tokens(), at, step_.end);
  }
}

RowState Row::state() const {
  const int64_t step = step_.end - cache_.offset();
  return {.id = id_,
          .pending = static_cast<int64_t>(pending().size()),
          .blocked = submission_->stream->full(),
          .most = std::min(step, cache_.max_append_tokens()),
          .atomic = step_.atomic ? step : 0,
          .waited = waited_};
}

void Row::commit(int64_t tokens) noexcept {
  cache_.commit(tokens);
  waited_ = 0;
}

int64_t Row::next_checkpoint(int64_t position) const {
  if (choice_ > 0 || !submission_->request.cache_prompt) return 0;
  if (!context_.exact_state) return static_cast<int64_t>(submission_->request.prompt.size());
  // A stop costs a forward, so short prompts get none.
  if (fork_at_ < kLeastCheckpoint) return 0;
  int64_t next = std::min((position / kCheckpointEvery + 1) * kCheckpointEvery, fork_at_);
  for (int64_t end : {turn_ends_.begin, turn_ends_.end}) {
    if (end > position && end >= kLeastCheckpoint) next = std::min(next, end);
  }
  return next;
}

bool Row::checkpoint_due() {
  const int64_t at = cache_.offset();
  if (at <= checkpointed_ || at != next_checkpoint(at - 1)) return false;
  checkpointed_ = at;
  return true;
}

bool Row::checkpoint_outlasts() const {
  const int64_t at = cache_.offset();
  return context_.exact_state && (at == fork_at_ || at == turn_ends_.begin || at == turn_ends_.end);
}

kv::RowCache Row::park(kv::RowCache fresh) {
  step_ = {};
  waited_ = 0;
  shared_tokens_ = 0;
  parked_ = true;
  return std::exchange(cache_, std::move(fresh));
}

void Row::resume(kv::RowCache cache) {
  cache_ = std::move(cache);
  checkpointed_ = std::max(checkpointed_, cache_.offset());
  parked_ = false;
}

void Row::restored(std::optional<kv::RowCache> cache) {
  ticket_ = 0;
  if (!cache) return;
  cache_ = std::move(*cache);
  checkpointed_ = std::max(checkpointed_, cache_.offset());
}

Sampled Row::sample(std::span<float> logits) {
  const std::optional<int>& top = submission_->request.top_logprobs;
  const std::vector<float> raw =
      top ? std::vector<float>(logits.begin(), logits.end()) : std::vector<float>{};
  Sampled sampled{sampler_.sample(logits, tokens()), {}};
  if (top) sampled.score = score(raw, sampled.token, *top, context_.kernels);
  return sampled;
}

TokenEvent Row::take(Sampled sampled, Clock::time_point now) {
  last_token_ = now;
  ids_.push_back(sampled.token);
  sampler_.accept(sampled.token);
  TokenEvent event{.choice = choice_, .ids = {sampled.token}};
  const Request& request = submission_->request;
  const bool ended = !request.ignore_eos && context_.end_tokens.contains(sampled.token);
  if (!ended) {
    event.text = stops_.push(detokenizer_.push(sampled.token));
    if (sampled.score) event.scores.push_back(std::move(*sampled.score));
  }
  if (ended || stops_.stopped()) {
    event.finish = FinishReason::kStop;
  } else if (answered() >= submission_->max_tokens) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish && !stops_.stopped()) {
    event.text += stops_.push(detokenizer_.finish());
    if (!stops_.stopped()) event.text += stops_.finish();
  }
  return event;
}

TokenEvent Row::replay(Clock::time_point now) {
  TokenEvent whole{.choice = choice_};
  for (const int32_t id : submission_->generation->answer) {
    const TokenEvent event = take({.token = id}, now);
    whole.text += event.text;
    whole.ids.push_back(id);
    whole.finish = event.finish;
    if (whole.finish) break;
  }
  return whole;
}

}  // namespace cohort::engine
