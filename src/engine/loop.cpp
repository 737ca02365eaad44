#include "engine/loop.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "kernels/cpu/cpu.h"

namespace cohort::engine {
namespace {

/// Snapshots that wait to be written to SSD hold blocks beside those of rows, which must not have
/// to wait for a disk.
size_t pool_bytes(const EngineOptions& options) {
  const size_t pending = options.ssd ? options.ssd->most_pending_bytes : 0;
  return options.kv_memory_bytes + std::min(pending, SIZE_MAX - options.kv_memory_bytes);
}

bool has_exact_state(const std::vector<kv::AnyLayerSpec>& layers) {
  return std::ranges::any_of(layers, [](const kv::AnyLayerSpec& layer) {
    const auto* attention = std::get_if<kv::LayerSpec>(&layer);
    return attention == nullptr || attention->window > 0;
  });
}

}  // namespace

bool Loop::is_want_of_memory(const std::exception& failure) {
  return kind_of(failure) == ErrorKind::kOverloaded ||
         dynamic_cast<const std::bad_alloc*>(&failure) != nullptr;
}

Loop::Loop(Forward& forward, std::vector<kv::AnyLayerSpec> layers, kernels::cpu::Cpu& cpu,
           const text::Tokenizer& tokenizer, std::set<int32_t> end_tokens, EngineOptions options,
           EngineStats& stats)
    : forward_(forward),
      cpu_(cpu),
      end_tokens_(std::move(end_tokens)),
      context_{tokenizer, end_tokens_, cpu.kernels(), has_exact_state(layers)},
      options_(std::move(options)),
      stats_(stats),
      memory_(std::move(layers), pool_bytes(options_), forward.block_copy()),
      kept_(options_.prompt_cache_bytes, options_.now),
      prefixes_(kept_),
      objects_(kept_),
      ssd_(options_.ssd ? std::make_unique<store::SsdStore>(*options_.ssd) : nullptr),
      budget_(options_.budget) {
  stats_.kv_limit_bytes = options_.kv_memory_bytes;
}

void Loop::accept(Submission submission) noexcept {
  const std::shared_ptr<Stream> stream = submission.stream;
  const size_t prompt_tokens = submission.request.prompt.size();
  stirred_ = true;
  try {
    line_.push(std::move(submission));
  } catch (const std::exception& failure) {
    end_stream(*stream, failure);
    left_line(prompt_tokens);
  }
}

Plan Loop::step() {
  stirred_ = false;
  take_restored();
  if (demotes()) demote();
  dismiss_cancelled();
  resume_parked();
  admit();
  prepare();
  times_.planned = options_.now();
  const std::vector<RowState> rows = states();
  const auto decoding = static_cast<size_t>(std::ranges::count_if(rows, decodes));
  const Plan plan = plan_iteration(rows, budget_.limits(decoding));
  const std::vector<Share> shares = reserve(plan);
  Plan done;
  for (const Share& share : shares) {
    done.groups.push_back({share.row->id(), share.tokens, share.samples});
  }
  if (!shares.empty()) {
    ++stats_.iterations;  // before anyone can see what came of it
    try {
      times_.reserved = options_.now();
      std::vector<Outcome> outcomes = iterate(shares);
      times_.sampled = options_.now();
      commit(std::move(outcomes));
      times_.committed = options_.now();
    } catch (const std::exception& failure) {
      for (const Share& share : shares) end(*share.row, failure);
    }
    observe(shares);
  } else {
    park_blocked();
  }
  sweep();
  return done;
}

void Loop::end_all(const TokenEvent& last) noexcept {
  for (Row& row : rows_) end(row, last);
  for (const Submission& submission : line_.take_all()) refuse(submission, last);
  sweep();
}

void Loop::release_memory() noexcept {
  forward_.release_memory();
  cpu_.release_memory();
  memory_.pools().trim();
}

void Loop::check_integrity() const {
  kv::BlockCensus census;
  for (const Row& row : rows_) row.cache().check_integrity(census);
  prefixes_.check_integrity(census);
  objects_.check_integrity();
  if (ssd_ != nullptr) ssd_->check_integrity(census);
  memory_.pools().check_integrity(census);
}

void Loop::demote() {
  // Only while all of them are on SSD, too.
  const store::SsdStats written = ssd_->stats();
  if (written.write_errors + written.dropped > 0) return;
  kept_.drop_unused(options_.now() - options_.demote_idle);
}

// Preparation.

template <class Act>
void Loop::with_memory(Row& row, const Act& act) noexcept {
  while (row.active()) {
    try {
      act();
      return;
    } catch (const std::exception& failure) {
      if (is_want_of_memory(failure) && evict_prefix()) continue;
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
    Trace* trace = row.submission().request.trace.get();
    with_memory(row, [&] {
      if (row.cache().max_append_tokens() == 0) {
        const TraceSpan span(trace, "prefill.kv_maintenance");
        row.cache().maintain(cpu_);
      }
      if (row.checkpoint_due()) {
        const TraceSpan span(trace, "prefill.checkpoint");
        keep(row);
      }
      if (row.forks_now()) {
        const TraceSpan span(trace, "prefill.companion");
        fork(row);
      }
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
    if (row.active()) states.push_back(row.state());
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
  std::erase_if(shares, [](const Share& share) { return !share.row->active(); });
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
      take(row, std::move(*sampled));
    }
  }
  if (prompt_step_ended) forward_.release_memory();
}

void Loop::take(Row& row, Sampled sampled) noexcept {
  const Clock::time_point arrived = row.submission().arrived;
  const auto since = [&](Clock::time_point then) {
    return std::chrono::duration<double>(times_.sampled - then).count();
  };
  if (row.answering()) {
    stats_.inter_token_s.observe(since(row.last_token()));
  } else if (row.choice() == 0) {
    stats_.time_to_first_token_s.observe(since(arrived));
  }
  ++stats_.generated_tokens;
  publish(row, [&] { return row.take(std::move(sampled), times_.sampled); });
  const int64_t every = options_.generation_checkpoint;
  if (!row.ended() && every > 0 && row.answered() % every == 0) checkpoint(row);
}

void Loop::replay(Row& row) noexcept {
  if (row.submission().replayed_tokens() == 0) return;
  const Clock::time_point now = options_.now();
  const std::chrono::duration<double> waited = now - row.submission().arrived;
  stats_.time_to_first_token_s.observe(waited.count());
  ++stats_.resumed_answers;
  publish(row, [&] { return row.replay(now); });
}

template <class Take>
void Loop::publish(Row& row, const Take& take) noexcept {
  std::optional<FinishReason> counted;
  try {
    TokenEvent event = take();
    const std::optional<FinishReason> finish = event.finish;
    if (finish && row.stream().open_choices() == 1) counted = finish;
    if (counted) stats_.count_end(*counted);  // before anybody can see it
    if (finish) {
      row.end();
      keep(row, std::move(row.cache()), Keep::kOnDisk);  // so that a flush after the answer has it
    }
    row.stream().push(std::move(event));
  } catch (const std::exception& failure) {
    if (counted && row.stream().open_choices() > 0) stats_.take_back_end(*counted);
    end(row, failure);
  }
}

void Loop::observe(const std::vector<Share>& shares) {
  size_t decoding = 0;
  int64_t prefilled = 0;
  bool traced = false;
  for (const Share& share : shares) {
    decoding += share.decodes();
    prefilled += share.decodes() ? 0 : share.tokens;
    traced = traced || share.row->submission().request.trace;
  }
  const std::chrono::duration<double> took = times_.committed - times_.planned;
  budget_.observe(decoding, prefilled, took.count());
  stats_.iteration_s.observe(took.count());
  stats_.batch_rows.observe(static_cast<double>(shares.size()));
  if (!traced) return;
  times_.forward = forward_.times();
  std::vector<TracedShare> traces;
  for (const Share& share : shares) {
    traces.push_back({share.row->submission().request.trace.get(), share.tokens, share.decodes(),
                      share.samples});
  }
  trace_iteration(traces, times_);
}

void Loop::end(Row& row, const std::exception& failure) noexcept {
  end_stream(row.stream(), failure);
  row.end();
}

void Loop::end(Row& row, const TokenEvent& last) noexcept {
  end_stream(row.stream(), last);
  row.end();
}

/// Even if its consumer cannot be woken.
void Loop::end_stream(Stream& stream, const TokenEvent& last) noexcept {
  if (stream.open_choices() > 0) stats_.count_end(*last.finish);
  try {
    stream.push(last);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cohort: the end of an answer reached nobody: %s\n", error.what());
  }
}

void Loop::end_stream(Stream& stream, const std::exception& failure) noexcept {
  try {
    end_stream(stream, {.finish = FinishReason::kError, .error = as_error(failure)});
  } catch (const std::exception&) {  // no memory for the reason
    end_stream(stream, {.finish = FinishReason::kError});
  }
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
  const store::PrefixCacheStats kept = prefixes_.stats();
  stats_.prefixes = kept.entries;
  stats_.prefix_bytes = kept.bytes;
  stats_.prefix_hits = kept.hits;
  stats_.prefix_misses = kept.misses;
  stats_.prefix_evictions = kept.evictions;
}

}  // namespace cohort::engine
