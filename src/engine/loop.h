#pragma once

#include <list>
#include <memory>
#include <set>
#include <variant>
#include <vector>

#include "engine/engine_stats.h"
#include "engine/forward.h"
#include "engine/iteration_trace.h"
#include "engine/options.h"
#include "engine/row.h"
#include "engine/scheduler.h"
#include "engine/waiting_line.h"
#include "store/object_cache.h"
#include "store/prefix_cache.h"
#include "store/ssd/ssd_store.h"

namespace cohort::kernels::cpu {
class Cpu;
}

namespace cohort::engine {

/// The engine without its thread: rows, their memory, and the steps that move them. What a step
/// does, and what each failure costs, is the contract in README.md beside this file.
///   thread  engine
class Loop {
 public:
  /// All references outlive the loop.
  Loop(Forward& forward, std::vector<kv::AnyLayerSpec> layers, kernels::cpu::Cpu& cpu,
       const text::Tokenizer& tokenizer, std::set<int32_t> end_tokens, EngineOptions options,
       EngineStats& stats);

  /// Takes a request into the line, where whoever submitted it has counted it already.
  void accept(Submission submission) noexcept;
  /// One iteration.
  ///   returns  what was in its forward; nothing if no row could move
  Plan step();
  /// Whether a step might do more than the last one did, though nothing has come from outside.
  bool stirred() const { return stirred_; }
  /// Ends every row and every waiting request: nothing is left that refers to the loop's owner.
  void end_all(const TokenEvent& last) noexcept;

  const std::list<Row>& rows() const { return rows_; }
  /// How long a reader may be slow before somebody who waits gets its place.
  static constexpr std::chrono::seconds kUnreadTime{1};
  bool some_wait() const { return !line_.empty(); }
  /// Whether time alone makes it do something: what is kept and nobody uses leaves memory.
  bool demotes() const {
    return ssd_ != nullptr && options_.demote_idle.count() > 0 && !kept_.uses().empty();
  }
  /// Gives back what it need not hold while there are no rows.
  void release_memory() noexcept;
  void forget_prefixes() {
    prefixes_.clear();
    count();
  }
  /// Null = there is none.  thread of its calls  see SsdStore
  store::SsdStore* ssd() const { return ssd_.get(); }
  /// Share the budget of the prefixes. What is put there is to be offered to the SSD, too.
  store::ObjectCache& objects() { return objects_; }
  store::PrefixCacheStats prefix_stats() const { return prefixes_.stats(); }
  /// Throws Error{kInternal} if the rows' caches and their pools contradict each other.
  void check_integrity() const;

 private:
  /// A planned group with its row.
  struct Share {
    Row* row;
    int64_t tokens;
    bool samples;
    bool decodes() const { return tokens == 1 && samples; }
  };
  /// What one row got out of an iteration: its token, or why it failed; neither while prefilling.
  struct Outcome {
    Row* row;
    int64_t tokens;  // to commit
    std::variant<std::monostate, Sampled, Error> result;
  };

  void demote();

  // Admission.
  void dismiss_cancelled();
  void resume_parked();
  void admit();
  void make_row(Submission taken);
  void refuse(const Submission& submission, const TokenEvent& last) noexcept;
  void left_line(size_t prompt_tokens) noexcept;
  size_t places() const;
  bool has_places(const Submission& submission) const;
  bool fits(const Submission& submission) const;
  size_t bytes_of(const Submission& submission, int64_t tokens) const;
  /// Whether a row of `tokens` fits beside what the active rows need now and soon.
  bool has_room(const Submission& submission, int64_t tokens, int64_t most_tokens) const;
  void open(Row& row);
  kv::RowCache from_memory(const Submission& submission, std::span<const int32_t> ids);
  void take_restored();
  void count_cached(Row& row);
  enum class Keep { kInMemory, kOnDisk };
  /// Keeps what a row holds, or held, for those who begin alike.
  void keep(const Row& row) noexcept;
  void keep(const Row& row, kv::RowCache cache, Keep where) noexcept;
  /// Keeps on SSD what a retry of the request would go on with.
  void checkpoint(const Row& row) noexcept;
  ///   returns  false if none was kept
  bool evict_prefix() noexcept;
  void lose_prefixes(const std::exception& failure) noexcept;

  // Preparation.
  void prepare();
  void fork(Row& row);
  /// Does something to a row that may take memory. While there is none, kept prefixes go, and then
  /// the lowest row gives up its own, or this one does, if it is the lowest.
  template <class Act>
  void with_memory(Row& row, const Act& act) noexcept;
  /// The active row that gives way to all others; never a lone one.
  Row* lowest_row();
  void park(Row& row);
  void park_blocked() noexcept;
  /// Parks a row whose consumer has not read since `since`.
  ///   returns  false if there is none
  bool park_unread(Clock::time_point since) noexcept;
  static bool is_want_of_memory(const std::exception& failure);

  // Iteration.
  std::vector<RowState> states();
  std::vector<Share> reserve(const Plan& plan);
  std::vector<Outcome> iterate(const std::vector<Share>& shares);
  std::vector<Outcome> forward(const std::vector<Share>& shares);
  std::vector<Outcome> sample(const std::vector<Share>& shares, std::span<float> logits);
  void commit(std::vector<Outcome> outcomes) noexcept;
  void take(Row& row, Sampled sampled) noexcept;
  /// Gives out what an earlier run of a new row's request has left.
  void replay(Row& row) noexcept;
  /// Has a row take tokens, and tells its consumer.
  template <class Take>
  void publish(Row& row, const Take& take) noexcept;
  /// What the iteration took, for the budget, the statistics and the traces of its rows.
  void observe(const std::vector<Share>& shares);

  void end(Row& row, const std::exception& failure) noexcept;
  void end(Row& row, const TokenEvent& last) noexcept;
  void end_stream(Stream& stream, const std::exception& failure) noexcept;
  void end_stream(Stream& stream, const TokenEvent& last) noexcept;
  /// Forgets the rows that have ended.
  void sweep() noexcept;
  void count() noexcept;

  Forward& forward_;
  kernels::cpu::Cpu& cpu_;
  const std::set<int32_t> end_tokens_;
  const RowContext context_;
  const EngineOptions options_;
  EngineStats& stats_;
  kv::KvMemory memory_;
  store::Retention kept_;
  store::PrefixCache prefixes_;
  store::ObjectCache objects_;
  std::unique_ptr<store::SsdStore> ssd_;  // null = off
  TokenBudget budget_;
  WaitingLine line_;
  std::list<Row> rows_;  // in order of arrival, so ids rise
  uint64_t next_id_ = 1;
  IterationTimes times_;
  bool stirred_ = false;
};

}  // namespace cohort::engine
