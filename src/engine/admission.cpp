// Who becomes a row, and who gives way: the part of the loop that shares out places and memory.

#include <algorithm>
#include <cstdio>
#include <tuple>
#include <utility>

#include "engine/loop.h"
#include "kv/fit.h"

namespace cohort::engine {
namespace {

// What a row may grow by before the next one is let in: so many that a row that has just been
// taken in does not have to give way at once.
constexpr int64_t kGrowthTokens = 128;

void warn_unkept(const std::exception& failure) {
  std::fprintf(stderr, "cohort: a prefix could not be kept: %s\n", failure.what());
}

}  // namespace

/// Each row is looked at once: it may be cancelled at any moment, and must not go untold.
void Loop::dismiss_cancelled() {
  for (Row& row : rows_) {
    if (row.stream().cancelled()) end(row, TokenEvent{.finish = FinishReason::kCancelled});
  }
  for (const Submission& submission : line_.take_cancelled()) {
    refuse(submission, {.finish = FinishReason::kCancelled});
  }
  sweep();
}

size_t Loop::bytes_of(const Submission& submission, int64_t tokens) const {
  return kv::peak_bytes(submission.precision, memory_.layers(), tokens, options_.prefill.chunk);
}

/// Kept prefixes do not count: they go when somebody needs their memory.
bool Loop::has_room(const Submission& submission, int64_t tokens, int64_t most_tokens) const {
  if (options_.kv_memory_bytes == SIZE_MAX) return true;
  const auto soon = [](int64_t now, int64_t most) { return std::min(now + kGrowthTokens, most); };
  size_t needed = bytes_of(submission, soon(tokens, most_tokens));
  for (const Row& row : rows_) {
    if (row.parked()) continue;
    needed += bytes_of(row.submission(), soon(row.tokens(), row.most_tokens()));
    if (row.shared_tokens() > 0) needed -= bytes_of(row.submission(), row.shared_tokens());
  }
  return needed <= options_.kv_memory_bytes;
}

/// A cache that holds as much of `ids` as earlier rows have left.
kv::RowCache Loop::open_cache(const Submission& submission, std::span<const int32_t> ids) {
  const TraceSpan span(submission.request.trace.get(), "cache.lookup");
  if (submission.request.cache_prompt) {
    std::optional<store::PrefixHit> hit = prefixes_.take(submission.space, ids);
    for (const TokenSpan& atomic : submission.request.atomic) {
      if (!hit || hit->tokens <= atomic.begin || hit->tokens >= atomic.end) continue;
      hit = prefixes_.take(submission.space, ids.first(static_cast<size_t>(atomic.begin) + 1));
    }
    if (hit) return std::move(hit->cache);
  }
  return memory_.new_row(submission.precision);
}

void Loop::keep(const Row& row) noexcept {
  if (options_.prompt_cache_bytes == 0) return;
  try {
    keep(row, row.cache().clone());
  } catch (const std::exception& failure) {
    warn_unkept(failure);
  }
}

/// That a prefix cannot be kept harms nobody.
void Loop::keep(const Row& row, kv::RowCache cache) noexcept {
  const Request& request = row.submission().request;
  if (!request.cache_prompt || cache.offset() == 0) return;
  try {
    const auto tokens = static_cast<size_t>(cache.offset());
    prefixes_.put(row.submission().space, row.ids().first(tokens), std::move(cache),
                  {.session = request.session});
  } catch (const std::exception& failure) {
    warn_unkept(failure);
  }
}

/// In order of urgency and arrival; who does not fit keeps the later ones waiting, too.
void Loop::resume_parked() {
  std::vector<Row*> parked;
  bool any_active = false;
  for (Row& row : rows_) {
    any_active = any_active || !row.parked();
    if (row.parked() && !row.stream().full()) parked.push_back(&row);
  }
  std::ranges::stable_sort(parked, {},
                           [](const Row* row) { return row->submission().request.priority; });
  for (Row* row : parked) {
    if (any_active && !has_room(row->submission(), row->tokens(), row->most_tokens())) return;
    try {
      row->resume(open_cache(row->submission(), row->ids()));
    } catch (const std::exception& failure) {
      end(*row, failure);
    }
    any_active = true;
  }
}

void Loop::refuse(const Submission& submission, const TokenEvent& last) noexcept {
  end_stream(*submission.stream, last);
  left_line(submission);
}

void Loop::left_line(const Submission& submission) noexcept {
  stats_.waiting_tokens -= submission.request.prompt.size();
  --stats_.waiting;
}

void Loop::admit() {
  // Who was here before goes first. A parked row whose consumer does not read waits for that alone.
  const bool some_wait =
      std::ranges::any_of(rows_, [](Row& row) { return row.parked() && !row.stream().full(); });
  while (!some_wait) {
    const Submission* next = line_.next(options_.now());
    if (next == nullptr) break;
    if (!rows_.empty()) {
      const auto choices = static_cast<size_t>(next->request.choices);
      if (places() + choices > options_.max_rows) break;
      const auto prompt = static_cast<int64_t>(next->request.prompt.size());
      if (!has_room(*next, prompt, prompt + next->max_tokens)) break;
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
  const Clock::time_point now = options_.now();
  const Clock::time_point arrived = submission->arrived;
  stats_.queue_s.observe(std::chrono::duration<double>(now - arrived).count());
  stats_.prompt_tokens += submission->request.prompt.size();
  if (Trace* trace = submission->request.trace.get()) trace->add({"queue", arrived, now});
  try {
    kv::RowCache cache = open_cache(*submission, submission->request.prompt);
    const auto cached = static_cast<size_t>(cache.offset());
    submission->stream->set_cached_tokens(cached);
    stats_.cached_tokens += cached;
    rows_.emplace_back(RowId{next_id_++}, submission, context_, std::move(cache));
  } catch (const std::exception& failure) {
    end_stream(*submission->stream, failure);
  }
  count();
  left_line(*submission);  // last: at no moment is a request in neither
}

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

}  // namespace cohort::engine
