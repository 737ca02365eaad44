// Who becomes a row, and who gives way: the part of the loop that shares out places and memory.

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/loop.h"
#include "kv/fit.h"

namespace cohort::engine {
namespace {

// What a row may grow by before the next one is let in: so many that a row that has just been
// taken in does not have to give way at once.
constexpr int64_t kGrowthTokens = 128;

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
  const Clock::time_point now = options_.now();
  const Clock::time_point arrived = submission->arrived;
  stats_.queue_s.observe(std::chrono::duration<double>(now - arrived).count());
  stats_.prompt_tokens += submission->request.prompt.size();
  if (Trace* trace = submission->request.trace.get()) trace->add({"queue", arrived, now});
  try {
    rows_.emplace_back(RowId{next_id_++}, submission, context_,
                       memory_.new_row(submission->precision));
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
