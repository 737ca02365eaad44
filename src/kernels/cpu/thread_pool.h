#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace cohort::kernels::cpu {

/// A fixed set of workers for short data-parallel loops. The calling thread is worker 0.
///   order    each worker has a share of the items, one after the other, and takes its items in
///            order, so that what they read follows in memory; then it helps with the others'
///            shares
///   start    workers spin for tens of microseconds between loops, then sleep on a futex
///   finish   a loop ends when its items are done, not when every worker has looked at it, so a
///            worker that lost its core delays nothing but the item it holds; the one that the
///            caller had to wait for sits out the loops of the next 50 ms: what shares its core
///            would take it away again
///   thread   one caller at a time: the MLX stream, or the engine while that is idle
class ThreadPool {
 public:
  /// `threads` counts the caller; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(shares_.size()); }

  /// Calls body(i) for every i in [0, n), in any order, on any worker. `body` must not throw.
  template <class Body>
  void parallel_for(size_t n, Body&& body) {
    run(
        n, [](void* context, size_t i) { (*static_cast<Body*>(context))(i); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Function = void (*)(void*, size_t);
  using Clock = std::chrono::steady_clock;
  static constexpr uint64_t kClosed = 0xffffffffu;

  void run(size_t n, Function function, void* context);
  struct Work {
    int items = 0;
    bool was_last = false;  // the loop ended with an item of it
  };
  /// Claims and runs items of the loop `epoch` until none is left, those of share `self` first.
  Work work(uint32_t epoch, size_t self);
  void worker_loop(size_t self);
  size_t share_begin(size_t share, size_t count) const {
    return (count * share + shares_.size() - 1) / shares_.size();
  }

  std::vector<std::thread> workers_;
  // Loop number << 32 | next item. Fields of a loop change only while all of its tickets are
  // closed, so a successful claim proves that the fields read before it belong to that loop.
  struct alignas(64) Share {
    std::atomic<uint64_t> ticket{kClosed};
  };
  std::vector<Share> shares_;  // of each worker
  alignas(64) std::atomic<Function> function_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<uint32_t> count_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // what sleeping workers wait on
  std::atomic<int> sleepers_{0};
  std::atomic<uint32_t> late_epoch_{0};        // of the last loop whose end was waited for,
  std::atomic<Clock::time_point> late_end_{};  // and when that was
  std::atomic<bool> stopping_{false};
};

}  // namespace cohort::kernels::cpu
