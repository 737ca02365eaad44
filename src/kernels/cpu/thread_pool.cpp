#include "kernels/cpu/thread_pool.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::kernels::cpu {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // takes about as long; "yield" takes no time
#else
  std::this_thread::yield();
#endif
}

constexpr int kSpins = 4000;         // about 60 microseconds before a worker sleeps
constexpr int kSpinsToYield = 2000;  // the caller yields its core to a worker that lost its own
constexpr std::chrono::milliseconds kLate{1};      // more than an item takes: it lost its core
constexpr std::chrono::milliseconds kSitsOut{50};  // then

}  // namespace

ThreadPool::ThreadPool(int threads) : shares_(static_cast<size_t>(std::max(threads, 1))) {
  for (size_t i = 1; i < shares_.size(); ++i) workers_.emplace_back([this, i] { worker_loop(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(size_t n, Function function, void* context) {
  if (n == 0) return;
  if (workers_.empty() || n == 1) {
    for (size_t i = 0; i < n; ++i) function(context, i);
    return;
  }
  const auto start = Clock::now();
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  // Release: who reads one of these has seen the last tickets closed, and can claim nothing.
  function_.store(function, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  count_.store(static_cast<uint32_t>(n), std::memory_order_release);
  done_.store(0, std::memory_order_relaxed);
  for (size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].ticket.store(uint64_t{epoch} << 32 | share_begin(i, n), std::memory_order_release);
  }
  epoch_.store(epoch, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) epoch_.notify_all();
  const Work own = work(epoch, 0);
  const auto worked = Clock::now();
  for (int spins = 0; done_.load(std::memory_order_acquire) < n; ++spins) {
    if (spins < kSpinsToYield) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  for (Share& share : shares_) {
    share.ticket.store(uint64_t{epoch} << 32 | kClosed, std::memory_order_release);
  }
  const auto an_item = (worked - start) / std::max(own.items, 1);
  const auto end = Clock::now();
  if (end - worked <= kLate + 2 * an_item) return;
  late_end_.store(end);
  late_epoch_.store(epoch);
}

ThreadPool::Work ThreadPool::work(uint32_t epoch, size_t self) {
  Work own;
  for (size_t i = 0; i < shares_.size();) {
    const size_t share = (self + i) % shares_.size();
    std::atomic<uint64_t>& next = shares_[share].ticket;
    uint64_t ticket = next.load(std::memory_order_acquire);
    const Function function = function_.load(std::memory_order_acquire);
    void* const context = context_.load(std::memory_order_acquire);
    const uint32_t count = count_.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(ticket >> 32) != epoch) return own;
    if ((ticket & kClosed) >= share_begin(share + 1, count)) {
      ++i;
    } else if (next.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) {
      function(context, ticket & kClosed);
      own.was_last = done_.fetch_add(1, std::memory_order_release) + 1 == count;
      ++own.items;
    }
  }
  return own;
}

void ThreadPool::worker_loop(size_t self) {
  uint32_t seen = 0;
  Work own;
  for (;;) {
    for (int spins = 0; spins < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++spins) {
      pause();
    }
    if (epoch_.load(std::memory_order_seq_cst) == seen) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      epoch_.wait(seen, std::memory_order_seq_cst);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      continue;
    }
    if (own.was_last && late_epoch_.load() == seen) {
      std::this_thread::sleep_until(late_end_.load() + kSitsOut);
    }
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load()) return;  // read after the epoch that the destructor raised, if it did
    own = work(seen, self);
  }
}

}  // namespace cohort::kernels::cpu
