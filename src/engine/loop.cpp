#include "engine/loop.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "kernels/cpu/cpu.h"
#include "kv/fit.h"

namespace cohort::engine {
namespace {

// What a row may grow by before the next one is let in: so many that a row that has just been
// taken in does not have to give way at once.
constexpr int64_t kGrowthTokens = 128;

/// What is told of a failure: whose fault it is stays, what is no Error is ours.
Error as_error(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr ? *error : Error(ErrorKind::kInternal, failure.what());
}

bool is_want_of_memory(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr ? error->kind() == ErrorKind::kOverloaded
                          : dynamic_cast<const std::bad_alloc*>(&failure) != nullptr;
}

/// The last event of a request, even if its consumer cannot be woken.
void end_stream(Stream& stream, const TokenEvent& last) noexcept {
  try {
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

}  // namespace

Loop::Loop(Forward& forward, std::vector<kv::AnyLayerSpec> layers, kernels::cpu::Cpu& cpu,
           const text::Tokenizer& tokenizer, std::set<int32_t> end_tokens, EngineOptions options,
           EngineStats& stats)
    : forward_(forward),
      cpu_(cpu),
      end_tokens_(std::move(end_tokens)),
      context_{tokenizer, end_tokens_, cpu.kernels()},
      options_(std::move(options)),
      stats_(stats),
      memory_(std::move(layers), options_.kv_memory_bytes),
      budget_(options_.budget) {}

void Loop::accept(Submission submission) {
  // Counted by whoever submitted it.
  line_.push(std::move(submission), options_.now());
  stirred_ = true;
}

Plan Loop::step() {
  stirred_ = false;
  dismiss_cancelled();
  resume_parked();
  admit();
  prepare();
  const std::vector<RowState> rows = states();
  const auto decoding = static_cast<size_t>(std::ranges::count_if(rows, decodes));
  const Plan plan = plan_iteration(rows, budget_.limits(decoding));
  const std::vector<Share> shares = reserve(plan);
  Plan done;
  for (const Share& share : shares) {
    done.groups.push_back({share.row->id(), share.tokens, share.samples});
  }
  if (!shares.empty()) {
    const Clock::time_point begun = options_.now();
    ++stats_.iterations;  // before anyone can see what came of it
    try {
      commit(iterate(shares));
      observe(shares, begun);
    } catch (const std::exception& failure) {
      for (const Share& share : shares) end(*share.row, failure);
    }
  }
  sweep();
  return done;
}

void Loop::end_all(const TokenEvent& last) noexcept {
  for (Row& row : rows_) end(row, last);
  for (const Submission& submission : line_.take_all()) {
    end_stream(*submission.stream, last);
    left_line(submission);
  }
  sweep();
}

void Loop::check_integrity() const {
  kv::BlockCensus census;
  for (const Row& row : rows_) row.cache().check_integrity(census);
  memory_.pools().check_integrity(census);
}

// Admission.

/// Each row is looked at once: it may be cancelled at any moment, and must not go untold.
void Loop::dismiss_cancelled() {
  for (Row& row : rows_) {
    if (row.stream().cancelled()) end(row, TokenEvent{.finish = FinishReason::kCancelled});
  }
  for (const Submission& submission : line_.take_cancelled()) {
    end_stream(*submission.stream, {.finish = FinishReason::kCancelled});
    left_line(submission);
  }
  sweep();
}

size_t Loop::needed_bytes(const Row& row) const {
  const int64_t soon = std::min(row.tokens() + kGrowthTokens, row.most_tokens());
  return kv::peak_bytes(row.submission().precision, memory_.layers(), soon, options_.prefill.chunk);
}

bool Loop::has_room(const kv::RowPrecision& precision, int64_t tokens) const {
  if (options_.kv_memory_bytes == SIZE_MAX) return true;
  const auto bytes = [&](const kv::RowPrecision& of, int64_t count) {
    return kv::peak_bytes(of, memory_.layers(), count, options_.prefill.chunk);
  };
  size_t needed = memory_.pools().used_bytes() + bytes(precision, tokens);
  for (const Row& row : rows_) {
    if (row.parked()) continue;
    const size_t held = bytes(row.submission().precision, row.cache().offset());
    needed += std::max(needed_bytes(row), held) - held;
  }
  return needed <= options_.kv_memory_bytes;
}

/// In order of urgency and arrival; who does not fit keeps the later ones waiting, too.
void Loop::resume_parked() {
  std::vector<Row*> parked;
  bool any_active = false;
  for (Row& row : rows_) {
    any_active = any_active || !row.parked();
    if (row.parked() && !row.stream().full()) parked.push_back(&row);
  }
  std::ranges::stable_sort(parked, {}, [](const Row* row) {
    return row->submission().request.priority;
  });
  for (Row* row : parked) {
    const int64_t soon = std::min(row->tokens() + kGrowthTokens, row->most_tokens());
    if (any_active && !has_room(row->submission().precision, soon)) return;
    row->resume();
    any_active = true;
  }
}

void Loop::left_line(const Submission& submission) noexcept {
  stats_.waiting_tokens -= submission.request.prompt.size();
  --stats_.waiting;
}

void Loop::admit() {
  // Who was here before goes first. A parked row whose consumer does not read waits for that alone.
  const bool some_wait = std::ranges::any_of(
      rows_, [](Row& row) { return row.parked() && !row.stream().full(); });
  while (!some_wait) {
    const Submission* next = line_.next(options_.now());
    if (next == nullptr) break;
    if (!rows_.empty()) {
      const auto choices = static_cast<size_t>(next->request.choices);
      if (places() + choices > options_.max_rows) break;
      const auto prompt = static_cast<int64_t>(next->request.prompt.size());
      const int64_t soon = prompt + std::min(kGrowthTokens, next->max_tokens);
      if (!has_room(next->precision, soon)) break;
    }
    make_row(line_.take());
  }
}

/// Rows, those that are still to be forked included.
size_t Loop::places() const {
  size_t places = 0;
  for (const Row& row : rows_) places += 1 + static_cast<size_t>(row.choices_left());
  return places;
}

void Loop::make_row(Submission taken) {
  const auto submission = std::make_shared<const Submission>(std::move(taken));
  try {
    rows_.emplace_back(RowId{next_id_++}, submission, context_,
                       memory_.new_row(submission->precision));
  } catch (const std::exception& failure) {
    end_stream(*submission->stream, failure);
  }
  count();
  left_line(*submission);  // last: at no moment is a request in neither
}

// Preparation.

Row* Loop::lowest_row() {
  const auto rank = [](Row& row) {
    return std::tuple(row.stream().full(), row.submission().request.priority, row.id());
  };
  Row* lowest = nullptr;
  int active = 0;
  for (Row& row : rows_) {
    if (row.parked() || row.ended()) continue;
    ++active;
    if (lowest == nullptr || rank(row) > rank(*lowest)) lowest = &row;
  }
  return active > 1 ? lowest : nullptr;
}

void Loop::park(Row& row) {
  row.park(memory_.new_row(row.submission().precision));
  ++stats_.preemptions;
  stirred_ = true;
}

template <class Act>
void Loop::with_memory(Row& row, const Act& act) noexcept {
  while (!row.parked() && !row.ended()) {
    try {
      act();
      return;
    } catch (const std::exception& failure) {
      Row* lowest = is_want_of_memory(failure) ? lowest_row() : nullptr;
      if (lowest == nullptr) return end(row, failure);
      try {
        park(*lowest);
      } catch (const std::exception&) {
        end(*lowest, failure);
      }
    }
  }
}

void Loop::prepare() {
  for (Row& row : rows_) {
    with_memory(row, [&] {
      row.cache().maintain(cpu_);
      if (row.forks_now()) fork(row);
      row.plan_step(options_.prefill);
    });
  }
  sweep();
}

void Loop::fork(Row& row) {
  const size_t before = rows_.size();
  try {
    for (int choice = 1; choice < row.submission().request.choices; ++choice) {
      rows_.push_back(Row::fork(RowId{next_id_++}, row, choice));
    }
  } catch (const std::exception&) {
    while (rows_.size() > before) rows_.pop_back();
    throw;
  }
  row.forked();
}

// Iteration.

std::vector<RowState> Loop::states() {
  std::vector<RowState> states;
  for (Row& row : rows_) {
    if (!row.parked()) states.push_back(row.state());
  }
  return states;
}

std::vector<Loop::Share> Loop::reserve(const Plan& plan) {
  std::vector<Share> shares;
  for (Row& row : rows_) row.passed_over();
  for (const PlannedGroup& group : plan.groups) {
    const auto row = std::ranges::find(rows_, group.id, [](const Row& r) { return r.id(); });
    check(row != rows_.end(), "a planned row exists");
    with_memory(*row, [&] { row->cache().reserve(group.tokens); });
    shares.push_back({&*row, group.tokens, group.samples});
  }
  std::erase_if(shares,
                [](const Share& share) { return share.row->parked() || share.row->ended(); });
  return shares;
}

std::vector<Loop::Outcome> Loop::iterate(const std::vector<Share>& shares) {
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

std::vector<Loop::Outcome> Loop::forward(const std::vector<Share>& shares) {
  std::vector<model::TokenGroup> groups;
  std::vector<size_t> samples;
  for (const Share& share : shares) {
    if (share.samples) samples.push_back(groups.size());
    groups.push_back(
        {share.row->pending().first(static_cast<size_t>(share.tokens)), share.row->cache()});
  }
  return sample(shares, forward_.run(groups, samples));
}

/// Rows sample side by side: what one draws depends on its own logits alone.
std::vector<Loop::Outcome> Loop::sample(const std::vector<Share>& shares, std::span<float> logits) {
  std::vector<Outcome> outcomes;
  std::vector<size_t> sampling;
  for (const Share& share : shares) {
    if (share.samples) sampling.push_back(outcomes.size());
    outcomes.push_back({share.row, share.tokens, {}});
  }
  const size_t vocab = sampling.empty() ? 0 : logits.size() / sampling.size();
  cpu_.pool().parallel_for(sampling.size(), [&](size_t i) {
    Outcome& outcome = outcomes[sampling[i]];
    try {
      outcome.result = outcome.row->sample(logits.subspan(i * vocab, vocab));
    } catch (const std::exception& error) {
      outcome.result = as_error(error);
    }
  });
  return outcomes;
}

void Loop::commit(std::vector<Outcome> outcomes) noexcept {
  bool prompt_step_ended = false;
  for (Outcome& outcome : outcomes) {
    Row& row = *outcome.row;
    row.commit(outcome.tokens);
    prompt_step_ended = prompt_step_ended || (outcome.tokens > 1 && row.step_ended());
    if (const auto* error = std::get_if<Error>(&outcome.result)) {
      end(row, *error);
    } else if (auto* sampled = std::get_if<Sampled>(&outcome.result)) {
      try {
        if (row.take(std::move(*sampled))) row.end();
      } catch (const std::exception& failure) {
        end(row, failure);
      }
    }
  }
  if (prompt_step_ended) forward_.release_memory();
}

void Loop::observe(const std::vector<Share>& shares, Clock::time_point begun) {
  size_t decoding = 0;
  int64_t prefilled = 0;
  for (const Share& share : shares) {
    if (share.tokens == 1 && share.samples) {
      ++decoding;
    } else {
      prefilled += share.tokens;
    }
  }
  const std::chrono::duration<double> took = options_.now() - begun;
  budget_.observe(decoding, prefilled, took.count());
}

void Loop::end(Row& row, const std::exception& failure) noexcept {
  end_stream(row.stream(), failure);
  row.end();
}

void Loop::end(Row& row, const TokenEvent& last) noexcept {
  end_stream(row.stream(), last);
  row.end();
}

void Loop::sweep() noexcept {
  if (std::erase_if(rows_, [](const Row& row) { return row.ended(); }) > 0) stirred_ = true;
  count();
}

void Loop::count() noexcept {
  stats_.rows = rows_.size();
  stats_.parked = static_cast<size_t>(std::ranges::count_if(rows_, &Row::parked));
  stats_.kv_used_bytes = memory_.pools().used_bytes();
  stats_.kv_held_bytes = memory_.pools().held_bytes();
}

}  // namespace cohort::engine
