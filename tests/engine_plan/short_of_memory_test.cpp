// An allocation fails, any one: who pays is what src/engine/README.md says, and nobody waits
// forever.

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/support/loop_scene.h"

namespace {

// Allocations of this thread until one fails; below 0 = none will.
thread_local int64_t allocations_left = -1;

}  // namespace

// Not inlined, or g++ warns of free() on what new gave.
[[gnu::noinline]] void* operator new(size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (allocations_left >= 0 && allocations_left-- == 0) return nullptr;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace cohort::engine {
namespace {

using test::FakeForward;
using test::LoopScene;

/// A few steps in which there is all that an engine does: prompts and answers side by side, choices
/// that fork, prefixes that are kept and found, rows that end.
class ShortScene {
 public:
  ShortScene() : scene_(options()) {
    submit(1, 1, 5, 12);
    submit(2, 2, 70, 5, 2);
    submit(3, 2, 70, 6);
    submit(4, 1, 30, 3);
  }

  /// One step, whose allocation number `failing` fails; none fails below 0.
  ///   returns  whether all were made
  bool step(int64_t failing) {
    testing::internal::CaptureStderr();
    allocations_left = failing;
    try {
      scene_.loop().step();
    } catch (const std::exception&) {
      thread_ended_ = true;  // as engine.cpp does it
    }
    const bool all = failing < 0 || allocations_left >= 0;
    allocations_left = -1;
    if (thread_ended_) scene_.loop().end_all({.finish = FinishReason::kError});
    said_ += testing::internal::GetCapturedStderr();
    scene_.read_all();
    scene_.loop().check_integrity();
    return all;
  }

  void finish() {
    scene_.run(200);
    for (const auto& [number, consumer] : scene_.consumers) {
      EXPECT_TRUE(consumer.over) << "request " << number << " waits forever";
      for (const std::string& end : consumer.ends) {
        failed_ += end == "error";
        EXPECT_TRUE(end == "length" || end == "error") << end;
      }
    }
    EXPECT_EQ(scene_.stats().rows, 0U);
    EXPECT_EQ(scene_.stats().waiting, 0U);
    EXPECT_EQ(scene_.stats().waiting_tokens, 0U);
    scene_.loop().forget_prefixes();
    EXPECT_EQ(scene_.stats().kv_used_bytes, 0U);
    uint64_t ended = 0;
    for (const auto& count : scene_.stats().ended) ended += count;
    EXPECT_EQ(ended, scene_.consumers.size());
  }

  bool moving() { return scene_.stats().rows + scene_.stats().waiting > 0; }
  bool thread_ended() const { return thread_ended_; }
  bool unkept() const { return said_.find("could not be kept") != std::string::npos; }
  /// Choices that ended with an error.
  int failed() const { return failed_; }

 private:
  static EngineOptions options() {
    EngineOptions options;
    options.budget = {.alone_tokens = 40, .mixed_tokens = 40};
    options.prompt_cache_bytes = size_t{1} << 20;
    return options;
  }

  void submit(int32_t number, int32_t like, int64_t prompt, int64_t max_tokens, int choices = 1) {
    scene_.submit(number, prompt, max_tokens,
                  {.prompt = FakeForward::prompt(like, prompt), .choices = choices});
  }

  LoopScene scene_;
  bool thread_ended_ = false;
  std::string said_;
  int failed_ = 0;
};

TEST(ShortOfMemory, AnyOneAllocationOfAStepMayFail) {
  int unkept = 0, failed = 0, thread_ends = 0;
  for (int at = 0; !HasFailure(); ++at) {
    bool moving = true, all = false;
    for (int64_t failing = 0; !all && moving && !HasFailure(); ++failing) {
      SCOPED_TRACE(fmt::format("allocation {} of step {}", failing, at));
      ShortScene scene;
      for (int before = 0; before < at; ++before) scene.step(-1);
      moving = scene.moving();
      all = scene.step(failing);
      scene.finish();
      if (scene.unkept()) {
        ++unkept;
        EXPECT_EQ(scene.failed(), 0) << "a prefix that cannot be kept harms nobody";
        EXPECT_FALSE(scene.thread_ended());
      }
      failed += scene.failed();
      thread_ends += scene.thread_ended();
      EXPECT_TRUE(!all || scene.failed() == 0);
    }
    if (!moving) break;
  }
  EXPECT_GT(unkept, 20);
  EXPECT_GT(failed, 100);
  EXPECT_GT(thread_ends, 0);
}

}  // namespace
}  // namespace cohort::engine
