#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <variant>
#include <vector>

#include "engine/engine_stats.h"
#include "engine/plan.h"
#include "engine/row.h"
#include "engine/scheduler.h"

namespace cohort::kernels::cpu {
class Cpu;
}
namespace cohort::model {
class Model;
}

namespace cohort::engine {

struct EngineOptions {
  size_t max_rows = 32;               // rows that are worked on at once; more wait
  size_t max_waiting = 512;           // requests that may wait; more are refused
  size_t kv_memory_bytes = SIZE_MAX;  // of the caches of all rows
  SchedulerLimits limits;
};

/// The engine thread and its loop: admit, maintain, plan, reserve, iterate, commit. The only caller
/// of MLX.
///   failures  a row's sampler fails that row, and so does a row's want of memory; a forward that
///             fails is tried once more without its prefill groups (their rows fail), so one prompt
///             cannot end running answers
class Engine {
 public:
  /// All references outlive the engine. Starts the thread.
  Engine(model::Model& model, kernels::cpu::Cpu& cpu, const text::Tokenizer& tokenizer,
         std::set<int32_t> end_tokens, EngineOptions options);
  /// Stops at once: rows that are left end as cancelled.
  ~Engine();

  /// Hands a request to the engine thread.
  ///   throws  Error{kOverloaded} when too many wait, kUnavailable once draining
  ///   thread  any
  void submit(Submission submission);
  /// Refuses what comes from now on; running rows go on.
  void stop_accepting() { draining_ = true; }
  /// False once the engine thread has ended.
  bool alive() const { return alive_.load(); }
  bool draining() const { return draining_.load(); }
  const EngineStats& stats() const { return stats_; }

 private:
  using RowPlace = std::list<Row>::iterator;
  /// A planned group with its row.
  struct Share {
    RowPlace row;
    int64_t tokens;
    bool samples;
  };
  /// What one row got out of an iteration: its token, or why it failed; neither while prefilling.
  struct Outcome {
    RowPlace row;
    int64_t tokens;  // to commit
    std::variant<std::monostate, int32_t, Error> result;
  };

  ///   returns  why not, if the request is refused
  std::optional<Error> enqueue(Submission submission);
  void run();
  void step();
  /// Takes new submissions; frees rows and places of requests whose consumer is gone.
  void admit();
  void make_row(Submission submission);
  /// Rows whose precision is due to change do so now; one that cannot ends.
  void maintain();
  /// Takes the memory for what is planned; a row that gets none ends, and what it held goes to
  /// those after it.
  void reserve(std::vector<Share>& shares);
  bool wait_for_work();
  std::vector<Share> find_rows(const Plan& plan);
  std::vector<Outcome> iterate(const std::vector<Share>& shares);
  std::vector<Outcome> forward(const std::vector<Share>& shares);
  void commit(std::vector<Outcome> outcomes) noexcept;
  void fail(const std::vector<Share>& shares, const std::exception& failure) noexcept;
  /// Ends every row and every waiting request: nothing is left that refers to the engine.
  void end_all(const TokenEvent& last) noexcept;
  void count_rows() noexcept { stats_.rows = rows_.size(); }
  void wake();

  // Constant after construction.
  model::Model& model_;
  kernels::cpu::Cpu& cpu_;
  const text::Tokenizer& tokenizer_;
  const std::set<int32_t> end_tokens_;
  const EngineOptions options_;

  // Engine thread.
  kv::KvMemory memory_;
  std::list<Row> rows_;  // in order of arrival, so ids rise
  uint64_t next_id_ = 1;

  // Guarded by mutex_. Streams call wake() with their own lock held: no call that locks a stream
  // may be made under mutex_.
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Submission> inbox_;
  bool stirred_ = false;  // a consumer made room or went away
  bool stopping_ = false;

  std::atomic<bool> alive_ = true;
  std::atomic<bool> draining_ = false;
  EngineStats stats_;
  std::thread thread_;
};

}  // namespace cohort::engine
