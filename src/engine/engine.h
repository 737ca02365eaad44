#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/engine_stats.h"
#include "engine/loop.h"

namespace cohort::engine {

/// The engine thread: takes requests in, runs the loop while there is something to do, and sleeps.
class Engine {
 public:
  /// All references outlive the engine, `forward` with the model behind it. Starts the thread.
  Engine(Forward& forward, std::vector<kv::AnyLayerSpec> layers, kernels::cpu::Cpu& cpu,
         const text::Tokenizer& tokenizer, std::set<int32_t> end_tokens, EngineOptions options);
  /// Rows that are left end as cancelled at once; then what is kept for SSD is written, for at most
  /// 10 s.
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
  /// Null = there is none. Valid while the engine lives; see its calls for their threads.
  store::SsdStore* ssd() const { return loop_.ssd(); }

 private:
  ///   returns  why not, if the request is refused
  std::optional<Error> enqueue(Submission submission);
  void run();
  /// Gives back what an idle server need not hold.
  void release_memory();
  /// Brings in what has arrived; sleeps first unless the loop has something to do.
  ///   returns  false when the engine is to stop
  bool receive(bool idle);
  /// Ends every row and every waiting request: nothing is left that refers to the engine.
  void end_all(const TokenEvent& last) noexcept;
  void wake();

  Forward& forward_;
  const EngineOptions options_;
  EngineStats stats_;
  Loop loop_;  // engine thread

  // Guarded by mutex_. Streams call wake() with their own lock held: no call that locks a stream
  // may be made under mutex_.
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Submission> inbox_;
  bool stirred_ = false;  // a consumer made room or went away
  bool stopping_ = false;

  std::atomic<bool> alive_ = true;
  std::atomic<bool> draining_ = false;
  std::thread thread_;
};

}  // namespace cohort::engine
