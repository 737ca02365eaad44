#include "engine/engine.h"

#include <mlx/mlx.h>

#include <cstdio>
#include <exception>
#include <utility>

#include "kernels/cpu/cpu.h"
#include "model/model.h"

namespace cohort::engine {

namespace mx = mlx::core;

Engine::Engine(model::Model& model, kernels::cpu::Cpu& cpu, const text::Tokenizer& tokenizer,
               std::set<int32_t> end_tokens, EngineOptions options)
    : model_(model),
      cpu_(cpu),
      tokenizer_(tokenizer),
      end_tokens_(std::move(end_tokens)),
      options_(options),
      memory_(model.shape().layers),
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
  {
    std::lock_guard lock(mutex_);
    if (draining_ || stopping_ || !alive_)
      cohort::fail(ErrorKind::kUnavailable, "the server is shutting down");
    if (inbox_.size() >= options_.max_waiting) drop_cancelled();
    if (inbox_.size() >= options_.max_waiting) {
      cohort::fail(ErrorKind::kOverloaded, "{} requests are waiting already; try again later",
                   inbox_.size());
    }
    inbox_.push_back(std::move(submission));
    stats_.waiting = inbox_.size();
  }
  work_.notify_one();
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
    mx::set_cache_limit(size_t{256} << 20);
    while (wait_for_work()) step();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cohort: the engine thread ended: %s\n", error.what());
  }
  std::lock_guard lock(mutex_);
  for (Row& row : rows_) row.end(FinishReason::kCancelled);
  rows_.clear();
  for (Submission& waiting : inbox_) waiting.stream->push({.finish = FinishReason::kCancelled});
  inbox_.clear();
  stats_.rows = stats_.waiting = 0;
  alive_ = false;
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
  std::vector<RowState> states;
  for (const Row& row : rows_) states.push_back(row.state());
  const Plan plan = plan_iteration(states, options_.limits);
  if (plan.empty()) return;
  try {
    commit(iterate(plan));
  } catch (const std::exception& error) {
    fail(plan, Error(ErrorKind::kInternal, error.what()));
  }
  ++stats_.iterations;
}

void Engine::admit() {
  for (Row& row : rows_) {
    if (row.stream().cancelled()) row.end(FinishReason::kCancelled);
  }
  std::erase_if(rows_, [](Row& row) { return row.stream().cancelled(); });

  std::deque<Submission> taken;
  {
    std::lock_guard lock(mutex_);
    drop_cancelled();
    while (!inbox_.empty() && rows_.size() + taken.size() < options_.max_rows) {
      taken.push_back(std::move(inbox_.front()));
      inbox_.pop_front();
    }
    stats_.waiting = inbox_.size();
    stats_.rows = rows_.size() + taken.size();
  }
  for (Submission& submission : taken) {
    const std::shared_ptr<Stream> stream = submission.stream;
    try {
      rows_.emplace_back(RowId{next_id_++}, std::move(submission), tokenizer_, end_tokens_,
                         memory_.new_row(), cpu_.kernels());
      stream->on_room([this] { wake(); });
    } catch (const std::exception& error) {
      stream->push(
          {.finish = FinishReason::kError, .error = Error(ErrorKind::kInternal, error.what())});
    }
  }
}

void Engine::drop_cancelled() {
  std::erase_if(inbox_, [](const Submission& waiting) { return waiting.stream->cancelled(); });
}

Row& Engine::find(RowId id) {
  for (Row& row : rows_) {
    if (row.id() == id) return row;
  }
  throw Error(ErrorKind::kInternal, "internal: a planned row exists");
}

std::vector<Engine::Outcome> Engine::iterate(const Plan& plan) {
  try {
    return forward(plan.groups);
  } catch (const std::exception& failure) {
    ++stats_.failed_forwards;
    std::vector<PlannedGroup> decoding;
    std::vector<Outcome> failed;
    for (const PlannedGroup& group : plan.groups) {
      if (group.tokens == 1 && group.samples) {
        decoding.push_back(group);
      } else {
        failed.push_back({group.id, 0, Error(ErrorKind::kInternal, failure.what())});
      }
    }
    if (failed.empty() || decoding.empty()) throw;
    std::vector<Outcome> outcomes = forward(decoding);
    outcomes.insert(outcomes.end(), failed.begin(), failed.end());
    return outcomes;
  }
}

std::vector<Engine::Outcome> Engine::forward(const std::vector<PlannedGroup>& groups) {
  std::vector<model::TokenGroup> tokens;
  std::vector<int32_t> last_tokens;  // of the groups that sample, in the pack
  int32_t packed = 0;
  for (const PlannedGroup& group : groups) {
    Row& row = find(group.id);
    tokens.push_back({row.pending().first(static_cast<size_t>(group.tokens)), row.cache()});
    packed += static_cast<int32_t>(group.tokens);
    if (group.samples) last_tokens.push_back(packed - 1);
  }
  mx::array result = model_.forward(tokens, nullptr);
  const size_t sampled = last_tokens.size();
  if (sampled > 0) result = model_.project(result, std::move(last_tokens));
  result.eval();

  std::vector<Outcome> outcomes;
  float* logits = sampled > 0 ? result.data<float>() : nullptr;
  const auto vocab = static_cast<size_t>(model_.shape().vocab_size);
  for (const PlannedGroup& group : groups) {
    Outcome outcome{group.id, group.tokens, {}};
    if (group.samples) {
      try {
        outcome.result = find(group.id).sample({logits, vocab});
      } catch (const std::exception& error) {
        outcome.result = Error(ErrorKind::kInternal, error.what());
      }
      logits += vocab;
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

void Engine::commit(const std::vector<Outcome>& outcomes) noexcept {
  std::set<RowId> finished;
  for (const Outcome& outcome : outcomes) {
    Row& row = find(outcome.id);
    row.cache().commit(outcome.tokens);
    if (const auto* token = std::get_if<int32_t>(&outcome.result)) {
      if (row.take(*token)) finished.insert(outcome.id);
    } else if (const auto* error = std::get_if<Error>(&outcome.result)) {
      row.end(FinishReason::kError, error);
      finished.insert(outcome.id);
    }
  }
  end_rows(finished);
}

void Engine::fail(const Plan& plan, const Error& error) noexcept {
  std::set<RowId> failed;
  for (const PlannedGroup& group : plan.groups) {
    find(group.id).end(FinishReason::kError, &error);
    failed.insert(group.id);
  }
  end_rows(failed);
}

void Engine::end_rows(const std::set<RowId>& ended) noexcept {
  std::erase_if(rows_, [&](const Row& row) { return ended.contains(row.id()); });
  stats_.rows = rows_.size();
}

}  // namespace cohort::engine
