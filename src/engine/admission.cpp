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
  std::vector<const Submission*> sharing;
  for (const Row& row : rows_) {
    if (row.parked()) continue;
    needed += bytes_of(row.submission(), soon(row.tokens(), row.most_tokens()));
    // One of the choices that share it counts what they share: no state of fixed size, which a row
    // of no tokens has, too.
    if (row.shared_tokens() == 0) continue;
    const bool counted = std::ranges::find(sharing, &row.submission()) != sharing.end();
    if (counted) {
      needed -= bytes_of(row.submission(), row.shared_tokens()) - bytes_of(row.submission(), 0);
    } else {
      sharing.push_back(&row.submission());
    }
  }
  return needed <= options_.kv_memory_bytes;
}

/// Gives a row a cache that holds as much of `ids` as earlier rows have left in memory, and has it
/// wait for more if there is more on SSD.
void Loop::open(Row& row) {
  const Submission& submission = row.submission();
  const TraceSpan span(submission.request.trace.get(), "cache.lookup");
  kv::RowCache cache = from_memory(submission, row.ids());
  const int64_t in_memory = cache.offset();
  row.resume(std::move(cache));
  if (ssd_ == nullptr || !submission.request.cache_prompt) return;
  std::optional<store::SsdMatch> found = ssd_->longest(submission.space, row.ids());
  if (!found || found->tokens <= in_memory) return;
  for (const TokenSpan& atomic : submission.request.atomic) {
    if (found->tokens > atomic.begin && found->tokens < atomic.end) return;
  }
  try {
    row.await(ssd_->restore(std::move(*found), memory_.new_row(submission.precision)));
  } catch (const std::exception& failure) {
    if (!is_want_of_memory(failure)) throw;
  }
}

kv::RowCache Loop::from_memory(const Submission& submission, std::span<const int32_t> ids) {
  if (submission.request.cache_prompt) {
    try {
      std::optional<store::PrefixHit> hit = prefixes_.take(submission.space, ids);
      for (const TokenSpan& atomic : submission.request.atomic) {
        if (!hit || hit->tokens <= atomic.begin || hit->tokens >= atomic.end) continue;
        hit = prefixes_.take(submission.space, ids.first(static_cast<size_t>(atomic.begin) + 1));
      }
      if (hit) return std::move(hit->cache);
    } catch (const std::exception& failure) {
      lose_prefixes(failure);
    }
  }
  return memory_.new_row(submission.precision);
}

/// Rows go on whose prefixes have been read, or could not be.
void Loop::take_restored() {
  if (ssd_ == nullptr) return;
  for (store::SsdStore::Restored& restored : ssd_->collect()) {
    const auto row = std::ranges::find(rows_, restored.ticket, &Row::ticket);
    if (row == rows_.end()) continue;  // cancelled meanwhile
    const bool found = restored.row.has_value();
    row->restored(std::move(restored.row));
    count_cached(*row);
    // Where the row's end cannot be cut back to it, who begins like this finds it in memory, too.
    if (found && context_.exact_state) keep(*row);
  }
}

/// What a row that has computed nothing yet need not compute.
void Loop::count_cached(Row& row) {
  const Submission& submission = row.submission();
  // Its own work, before it gave way.
  if (row.answered() > submission.replayed_tokens()) return;
  const size_t cached =
      std::min(static_cast<size_t>(row.cache().offset()), submission.request.prompt.size());
  stats_.cached_tokens += cached - row.stream().cached_tokens();
  row.stream().set_cached_tokens(cached);
}

void Loop::keep(const Row& row) noexcept {
  if (options_.prompt_cache_bytes == 0 && ssd_ == nullptr) return;  // spares the clone
  try {
    const Keep where = row.checkpoint_outlasts() ? Keep::kOnDisk : Keep::kInMemory;
    keep(row, row.cache().clone(), where);
  } catch (const std::exception& failure) {
    lose_prefixes(failure);
  }
}

/// That a prefix cannot be kept harms nobody.
void Loop::keep(const Row& row, kv::RowCache cache, Keep where) noexcept {
  const Request& request = row.submission().request;
  if (!request.cache_prompt || cache.offset() == 0) return;
  try {
    const std::string& space = row.submission().space;
    const std::span<const int32_t> ids = row.ids().first(static_cast<size_t>(cache.offset()));
    if (ssd_ != nullptr && where == Keep::kOnDisk) {
      std::optional<store::Generation> over;  // its checkpoints have served
      if (row.ended()) over = row.submission().generation;
      if (over) over->answer.clear();
      ssd_->offer(space, ids, cache.clone(), over);
    }
    prefixes_.put(space, ids, std::move(cache), {.session = request.session});
  } catch (const std::exception& failure) {
    lose_prefixes(failure);
  }
}

void Loop::checkpoint(const Row& row) noexcept {
  if (ssd_ == nullptr || !row.submission().generation) return;
  try {
    store::Generation generation = *row.submission().generation;
    const auto answer = row.ids().last(static_cast<size_t>(row.answered()));
    generation.answer.assign(answer.begin(), answer.end());
    ssd_->offer(row.submission().space, row.ids(), row.cache().clone(), generation);
  } catch (const std::exception& failure) {
    lose_prefixes(failure);
  }
}

bool Loop::evict_prefix() noexcept {
  try {
    return prefixes_.evict_one();
  } catch (const std::exception& failure) {
    lose_prefixes(failure);
    return true;
  }
}

/// What failed half-way is not asked again; and where even its books find no memory, all that is
/// kept is better given back.
void Loop::lose_prefixes(const std::exception& failure) noexcept {
  std::fprintf(stderr, "cohort: a prefix could not be kept, all are let go: %s\n", failure.what());
  prefixes_.clear();
  objects_.clear();
}

/// In order of urgency and arrival; who does not fit keeps the later ones waiting, too.
void Loop::resume_parked() {
  std::vector<Row*> parked;
  size_t active = 0;
  for (Row& row : rows_) {
    if (!row.parked()) active += row.places();
    if (row.resumable()) parked.push_back(&row);
  }
  std::ranges::stable_sort(parked, {},
                           [](const Row* row) { return row->submission().request.priority; });
  for (Row* row : parked) {
    if (active >= options_.max_rows) return;
    if (active > 0 && !has_room(row->submission(), row->tokens(), row->most_tokens())) return;
    try {
      open(*row);
    } catch (const std::exception& failure) {
      end(*row, failure);
    }
    active += row->places();
  }
}

void Loop::refuse(const Submission& submission, const TokenEvent& last) noexcept {
  end_stream(*submission.stream, last);
  left_line(submission.request.prompt.size());
}

void Loop::left_line(size_t prompt_tokens) noexcept {
  stats_.waiting_tokens -= prompt_tokens;
  --stats_.waiting;
}

void Loop::admit() {
  // Who was here before goes first. A parked row whose consumer does not read waits for that alone.
  const bool some_wait = std::ranges::any_of(rows_, &Row::resumable);
  while (!some_wait) {
    const Submission* next = line_.next(options_.now());
    if (next == nullptr) break;
    const Clock::time_point unread = options_.now() - kUnreadTime;
    while (!has_places(*next) && park_unread(unread)) continue;
    if (fits(*next)) {
      make_row(line_.take());
      continue;
    }
    auto passing =
        line_.take_passing(options_.now(), [this](const Submission& s) { return fits(s); });
    if (!passing) break;
    make_row(std::move(*passing));
  }
}

bool Loop::has_places(const Submission& submission) const {
  return places() + static_cast<size_t>(submission.request.choices) <= options_.max_rows;
}

/// Whether it may become a row now. One alone always may.
bool Loop::fits(const Submission& submission) const {
  if (rows_.empty()) return true;
  const auto prompt = static_cast<int64_t>(submission.request.prompt.size());
  return has_places(submission) && has_room(submission, prompt + submission.replayed_tokens(),
                                            prompt + submission.max_tokens);
}

/// Rows, those that are still to be forked included; but who parks until a consumer reads, which
/// may be never, takes none.
size_t Loop::places() const {
  size_t places = 0;
  for (const Row& row : rows_) {
    if (!row.parked() || row.resumable()) places += row.places();
  }
  return places;
}

void Loop::make_row(Submission taken) {
  const std::shared_ptr<Stream> stream = taken.stream;
  const size_t prompt_tokens = taken.request.prompt.size();
  const Clock::time_point now = options_.now();
  const Clock::time_point arrived = taken.arrived;
  stats_.queue_s.observe(std::chrono::duration<double>(now - arrived).count());
  stats_.prompt_tokens += prompt_tokens;
  if (Trace* trace = taken.request.trace.get()) trace->add({"queue", arrived, now});
  try {
    const auto submission = std::make_shared<const Submission>(std::move(taken));
    Row& row = rows_.emplace_back(RowId{next_id_++}, submission, context_,
                                  memory_.new_row(submission->precision));
    replay(row);
    if (!row.ended()) {
      open(row);
      count_cached(row);
    }
  } catch (const std::exception& failure) {
    end_stream(*stream, failure);
    // What is half made: open() may fail once the row stands in the list.
    if (!rows_.empty() && rows_.back().submission().stream == stream) rows_.pop_back();
  }
  count();
  left_line(prompt_tokens);  // last: at no moment is a request in neither
}

Row* Loop::lowest_row() {
  const auto rank = [](Row& row) {
    return std::tuple(row.stream().full(), row.submission().request.priority, row.id());
  };
  Row* lowest = nullptr;
  int active = 0;
  for (Row& row : rows_) {
    if (!row.active()) continue;
    ++active;
    if (lowest == nullptr || rank(row) > rank(*lowest)) lowest = &row;
  }
  return active > 1 ? lowest : nullptr;
}

/// When nobody can move, those whose consumers do not read make room for those who wait.
void Loop::park_blocked() noexcept {
  const bool some_wait = !line_.empty() || std::ranges::any_of(rows_, &Row::resumable);
  if (!some_wait || options_.kv_memory_bytes == SIZE_MAX) return;
  while (park_unread(Clock::time_point::max())) continue;
}

bool Loop::park_unread(Clock::time_point since) noexcept {
  for (Row& row : rows_) {
    if (!row.active() || !row.stream().full() || row.cache().offset() == 0) continue;
    if (row.last_token() > since) continue;
    try {
      park(row);
    } catch (const std::exception& failure) {
      end(row, failure);
    }
    return true;
  }
  return false;
}

void Loop::park(Row& row) {
  keep(row, row.park(memory_.new_row(row.submission().precision)), Keep::kInMemory);
  ++stats_.preemptions;
  stirred_ = true;
}

}  // namespace cohort::engine
