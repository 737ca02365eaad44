#include "engine/engine.h"

#include <mlx/mlx.h>

#include <algorithm>
#include <cstdio>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <exception>
#include <utility>

#include "kernels/cpu/cpu.h"
#include "model/model.h"

namespace cohort::engine {

namespace mx = mlx::core;

namespace {

/// What is told of a failure: whose fault it is stays, what is no Error is ours.
Error as_error(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr ? *error : Error(ErrorKind::kInternal, failure.what());
}

/// The last event of a request, even if its consumer cannot be woken.
void end_stream(Stream& stream, const TokenEvent& last) noexcept {
  try {
    stream.on_room({});  // whoever looks from now on has no engine to wake
    stream.push(last);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cohort: the end of an answer reached nobody: %s\n", error.what());
  }
}

void end_stream(Stream& stream, const std::exception& failure) noexcept {
  try {
    end_stream(stream, {.finish = FinishReason::kError, .error = as_error(failure)});
  } catch (const std::exception&) {  // no memory for the reason
    end_stream(stream, {.finish = FinishReason::kError});
  }
}

/// Does something to a row; what fails there ends this row alone.
///   returns  whether it failed
template <class F>
bool fails(Row& row, const F& act) noexcept {
  try {
    act();
    return false;
  } catch (const std::exception& failure) {
    end_stream(row.stream(), failure);
    return true;
  }
}

/// Of what an idle server need not hold: freed arrays, and pages of the heap.
void give_back_memory() {
  mx::clear_cache();
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace

Engine::Engine(model::Model& model, kernels::cpu::Cpu& cpu, const text::Tokenizer& tokenizer,
               std::set<int32_t> end_tokens, EngineOptions options)
    : model_(model),
      cpu_(cpu),
      tokenizer_(tokenizer),
      end_tokens_(std::move(end_tokens)),
      options_(options),
      memory_(model.shape().layers, options.kv_memory_bytes),
      thread_([this] { run(); }) {}

Engine::~Engine() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void Engine::submit(Submission submission) {
  const std::shared_ptr<Stream> stream = submission.stream;
  stream->on_room([this] { wake(); });
  if (std::optional<Error> refusal = enqueue(std::move(submission))) {
    stream->on_room({});
    throw *refusal;
  }
  work_.notify_one();
}

std::optional<Error> Engine::enqueue(Submission submission) {
  std::lock_guard lock(mutex_);
  if (draining_ || stopping_ || !alive_)
    return Error(ErrorKind::kUnavailable, "the server is shutting down");
  if (inbox_.size() >= options_.max_waiting) {
    return Error(ErrorKind::kOverloaded,
                 fmt::format("{} requests are waiting already; try again later", inbox_.size()));
  }
  inbox_.push_back(std::move(submission));
  stats_.waiting = inbox_.size();
  return std::nullopt;
}

void Engine::wake() {
  {
    std::lock_guard lock(mutex_);
    stirred_ = true;
  }
  work_.notify_one();
}

void Engine::run() {
  try {
    // MLX's CPU compilation runs a C++ compiler; its buffer cache need not outgrow a forward.
    mx::set_default_device(mx::Device::cpu);
    mx::disable_compile();
    mx::set_cache_limit(size_t{64} << 20);
    while (wait_for_work()) {
      step();
      stats_.kv_used_bytes = memory_.pools().used_bytes();
      stats_.kv_held_bytes = memory_.pools().held_bytes();
      if (rows_.empty()) give_back_memory();
    }
    end_all({.finish = FinishReason::kCancelled});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cohort: the engine thread ended: %s\n", error.what());
    end_all({.finish = FinishReason::kError, .error = as_error(error)});
  }
}

void Engine::end_all(const TokenEvent& last) noexcept {
  std::deque<Submission> waiting;
  {
    std::lock_guard lock(mutex_);
    alive_ = false;
    waiting.swap(inbox_);
  }
  for (Row& row : rows_) end_stream(row.stream(), last);
  rows_.clear();
  for (Submission& submission : waiting) end_stream(*submission.stream, last);
  stats_.rows = stats_.waiting = 0;
}

void Engine::maintain() {
  std::erase_if(rows_, [&](Row& row) { return fails(row, [&] { row.cache().maintain(cpu_); }); });
  count_rows();
}

void Engine::reserve(std::vector<Share>& shares) {
  std::erase_if(shares, [&](const Share& share) {
    const bool failed = fails(*share.row, [&] { share.row->cache().reserve(share.tokens); });
    if (failed) rows_.erase(share.row);
    return failed;
  });
  count_rows();
}

/// Waits until some row can move or something arrives. False when the engine is to stop.
bool Engine::wait_for_work() {
  const auto movable = [&] {
    for (const Row& row : rows_) {
      const RowState state = row.state();
      if (!state.blocked || state.pending > 1) return true;
    }
    return false;
  };
  const bool busy = movable();
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] {
    return stopping_ || stirred_ || busy || (!inbox_.empty() && rows_.size() < options_.max_rows);
  });
  stirred_ = false;
  return !stopping_;
}

void Engine::step() {
  admit();
  maintain();
  std::vector<RowState> states;
  for (const Row& row : rows_) states.push_back(row.state());
  const Plan plan = plan_iteration(states, options_.limits);
  if (plan.empty()) return;
  std::vector<Share> shares = find_rows(plan);
  reserve(shares);
  if (shares.empty()) return;
  ++stats_.iterations;  // before anyone can see what came of it
  try {
    commit(iterate(shares));
  } catch (const std::exception& failure) {
    fail(shares, failure);
  }
}

void Engine::admit() {
  // Each row is looked at once: it may be cancelled at any moment, and must not go untold.
  std::erase_if(rows_, [](Row& row) {
    const bool gone = row.stream().cancelled();
    if (gone) end_stream(row.stream(), {.finish = FinishReason::kCancelled});
    return gone;
  });
  std::deque<Submission> taken, gone, waiting;
  {
    std::lock_guard lock(mutex_);
    for (Submission& submission : inbox_) {
      const bool room = rows_.size() + taken.size() < options_.max_rows;
      auto& to = submission.stream->cancelled() ? gone : room ? taken : waiting;
      to.push_back(std::move(submission));
    }
    inbox_.swap(waiting);
    stats_.rows = rows_.size() + taken.size();  // first: at no moment is a request in neither
    stats_.waiting = inbox_.size();
  }
  for (Submission& submission : gone) {
    end_stream(*submission.stream, {.finish = FinishReason::kCancelled});
  }
  for (Submission& submission : taken) make_row(std::move(submission));
  count_rows();
}

void Engine::make_row(Submission submission) {
  const std::shared_ptr<Stream> stream = submission.stream;
  const kv::RowPrecision precision = std::move(submission.precision);
  try {
    rows_.emplace_back(RowId{next_id_++}, std::move(submission), tokenizer_, end_tokens_,
                       memory_.new_row(precision), cpu_.kernels());
  } catch (const std::exception& failure) {
    end_stream(*stream, failure);
  }
}

std::vector<Engine::Share> Engine::find_rows(const Plan& plan) {
  std::vector<RowPlace> places;
  for (RowPlace row = rows_.begin(); row != rows_.end(); ++row) places.push_back(row);
  std::vector<Share> shares;
  for (const PlannedGroup& group : plan.groups) {
    const auto at = std::ranges::lower_bound(places, group.id, {},
                                             [](const RowPlace& row) { return row->id(); });
    check(at != places.end() && (*at)->id() == group.id, "a planned row exists");
    shares.push_back({*at, group.tokens, group.samples});
  }
  return shares;
}

std::vector<Engine::Outcome> Engine::iterate(const std::vector<Share>& shares) {
  try {
    return forward(shares);
  } catch (const std::exception& failure) {
    ++stats_.failed_forwards;
    std::vector<Share> decoding;
    std::vector<Outcome> failed;
    for (const Share& share : shares) {
      if (share.row->answering()) {
        decoding.push_back(share);
      } else {
        failed.push_back({share.row, 0, as_error(failure)});
      }
    }
    if (failed.empty() || decoding.empty()) throw;
    std::vector<Outcome> outcomes = forward(decoding);
    outcomes.insert(outcomes.end(), failed.begin(), failed.end());
    return outcomes;
  }
}

std::vector<Engine::Outcome> Engine::forward(const std::vector<Share>& shares) {
  std::vector<model::TokenGroup> tokens;
  std::vector<int32_t> last_tokens;  // of the groups that sample, in the pack
  int32_t packed = 0;
  for (const Share& share : shares) {
    Row& row = *share.row;
    tokens.push_back({row.pending().first(static_cast<size_t>(share.tokens)), row.cache()});
    packed += static_cast<int32_t>(share.tokens);
    if (share.samples) last_tokens.push_back(packed - 1);
  }
  mx::array result = model_.forward(tokens, nullptr);
  const size_t sampled = last_tokens.size();
  if (sampled > 0) result = model_.project(result, std::move(last_tokens));
  result.eval();

  std::vector<Outcome> outcomes;
  float* logits = sampled > 0 ? result.data<float>() : nullptr;
  const auto vocab = static_cast<size_t>(model_.shape().vocab_size);
  for (const Share& share : shares) {
    Outcome outcome{share.row, share.tokens, {}};
    if (share.samples) {
      try {
        outcome.result = share.row->sample({logits, vocab});
      } catch (const std::exception& error) {
        outcome.result = as_error(error);
      }
      logits += vocab;
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

void Engine::commit(std::vector<Outcome> outcomes) noexcept {
  for (Outcome& outcome : outcomes) {
    Row& row = *outcome.row;
    row.cache().commit(outcome.tokens);
    bool ended = false;
    if (const auto* token = std::get_if<int32_t>(&outcome.result)) {
      const bool failed = fails(row, [&] { ended = row.take(*token); });
      ended = ended || failed;
    } else if (auto* error = std::get_if<Error>(&outcome.result)) {
      end_stream(row.stream(), {.finish = FinishReason::kError, .error = std::move(*error)});
      ended = true;
    }
    if (ended) rows_.erase(outcome.row);
  }
  count_rows();
}

void Engine::fail(const std::vector<Share>& shares, const std::exception& failure) noexcept {
  for (const Share& share : shares) {
    end_stream(share.row->stream(), failure);
    rows_.erase(share.row);
  }
  count_rows();
}

}  // namespace cohort::engine
