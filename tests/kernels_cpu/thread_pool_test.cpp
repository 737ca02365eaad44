#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
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

}  // namespace
}  // namespace cohort::kernels::cpu
