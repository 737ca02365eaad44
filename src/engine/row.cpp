#include "engine/row.h"

#include <utility>

namespace cohort::engine {

Row::Row(RowId id, Submission submission, const text::Tokenizer& tokenizer,
         const std::set<int32_t>& end_tokens, kv::RowCache cache,
         const kernels::cpu::Kernels& kernels)
    : id_(id),
      end_tokens_(end_tokens),
      ignore_eos_(submission.request.ignore_eos),
      ids_(std::move(submission.request.prompt)),
      prompt_tokens_(ids_.size()),
      max_tokens_(submission.max_tokens),
      stream_(std::move(submission.stream)),
      cache_(std::move(cache)),
      sampler_(std::move(submission.sampling), ids_, kernels),
      detokenizer_(tokenizer),
      stops_(submission.request.stop) {}

RowState Row::state() const {
  return {id_, static_cast<int64_t>(pending().size()), stream_->full(), cache_.max_append_tokens()};
}

int32_t Row::sample(std::span<float> logits) {
  return sampler_.sample(logits, static_cast<int64_t>(ids_.size()));
}

bool Row::take(int32_t token) {
  ids_.push_back(token);
  sampler_.accept(token);
  TokenEvent event{.ids = {token}};
  const auto answered = static_cast<int64_t>(ids_.size() - prompt_tokens_);
  const bool ended = !ignore_eos_ && end_tokens_.contains(token);
  if (!ended) event.text = stops_.push(detokenizer_.push(token));
  if (ended || stops_.stopped()) {
    event.finish = FinishReason::kStop;
  } else if (answered >= max_tokens_) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish && !stops_.stopped()) {
    event.text += stops_.push(detokenizer_.finish());
    if (!stops_.stopped()) event.text += stops_.finish();
  }
  const bool finished = event.finish.has_value();
  publish(std::move(event));
  return finished;
}

void Row::publish(TokenEvent event) {
  // A finished row is gone before its consumer looks: nobody is left to be told of room.
  if (event.finish) stream_->on_room({});
  stream_->push(std::move(event));
}

}  // namespace cohort::engine
