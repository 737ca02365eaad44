#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace cohort::kernels::cpu {
namespace {

TEST(ThreadPool, RunsEveryItemOnceInManyShortLoops) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (size_t loop = 0; loop < 20000; ++loop) {
      const size_t n = loop % 17;
      std::vector<std::atomic<int>> runs(n);
      pool.parallel_for(n, [&](size_t i) { runs[i].fetch_add(1, std::memory_order_relaxed); });
      for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 20; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> sum = 0;
    pool.parallel_for(100, [&](size_t i) { sum += static_cast<int>(i); });
    EXPECT_EQ(sum.load(), 4950);
  }
}

TEST(ThreadPool, AWorkerTakesItsShareInOrderAndThenHelps) {
  ThreadPool pool(2);
  std::mutex mutex;
  std::map<std::thread::id, std::vector<size_t>> items;
  std::atomic<int> done = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto waits = [&] {
    return std::chrono::steady_clock::now() - start < std::chrono::seconds(5);
  };
  pool.parallel_for(10, [&](size_t i) {
    {
      const std::lock_guard lock(mutex);
      items[std::this_thread::get_id()].push_back(i);
    }
    if (i == 5) {  // the worker's first: the caller does the rest of its share
      while (done < 9 && waits()) std::this_thread::yield();
    } else if (i == 0) {  // and begins when the worker has begun
      const auto begun = [&] {
        const std::lock_guard lock(mutex);
        return items.size() == 2;
      };
      while (!begun() && waits()) std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_EQ(items[std::this_thread::get_id()], (std::vector<size_t>{0, 1, 2, 3, 4, 6, 7, 8, 9}));
}

using Clock = std::chrono::steady_clock;

// As if something else had taken the worker's core in the middle of an item, for longer than the
// caller's took, however late both began.
void keep_the_caller_waiting(ThreadPool& pool) {
  const auto caller = std::this_thread::get_id();
  const auto begin = Clock::now();
  std::atomic<int> here = 0;
  std::atomic<Clock::duration> callers_item{};
  pool.parallel_for(2, [&](size_t) {
    for (++here; here < 2;) std::this_thread::yield();  // an item each
    if (std::this_thread::get_id() == caller) {
      callers_item = Clock::now() - begin;
    } else {
      while (callers_item.load() == Clock::duration::zero()) std::this_thread::yield();
      std::this_thread::sleep_for(3 * callers_item.load() + std::chrono::milliseconds(20));
    }
  });
}

TEST(ThreadPool, AWorkerThatKeptTheCallerWaitingSitsOut) {
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  keep_the_caller_waiting(pool);
  std::atomic<int> by_worker = 0;
  const auto start = Clock::now();
  const auto loop = [&] {
    pool.parallel_for(50, [&](size_t) {
      if (std::this_thread::get_id() != caller) ++by_worker;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  };
  loop();
  if (Clock::now() - start < std::chrono::milliseconds(40)) {
    EXPECT_EQ(by_worker.load(), 0);
  }
  while (by_worker == 0) loop();  // it comes back
}

TEST(ThreadPool, AWorkerHasSatOutWhenNothingRanMeanwhile) {
  ThreadPool pool(2);
  bool at_once = false;
  for (int trial = 0; trial < 5 && !at_once; ++trial) {  // the machine may be busy
    keep_the_caller_waiting(pool);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    const auto start = Clock::now();
    std::atomic<int> here = 0;
    pool.parallel_for(2, [&](size_t) {
      ++here;
      while (here < 2 && Clock::now() - start < std::chrono::milliseconds(40)) {
        std::this_thread::yield();
      }
    });
    at_once = Clock::now() - start < std::chrono::milliseconds(40);
  }
  EXPECT_TRUE(at_once);
}

}  // namespace
}  // namespace cohort::kernels::cpu
