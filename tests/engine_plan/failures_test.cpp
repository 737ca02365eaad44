// What fails takes down what src/engine/README.md says, and nothing else.

#include <gtest/gtest.h>

#include <latch>

#include "engine/engine.h"
#include "tests/support/answers.h"
#include "tests/support/loop_scene.h"

namespace cohort::engine {
namespace {

using test::collect;
using test::eventually;
using test::FakeForward;
using test::LoopScene;

/// Keys and values become bf16 at `start`: ids up to 256, those of requests 0 and 1, stay exact.
kv::RowPrecision changing_at(int64_t start) {
  return {{kernels::cpu::dense_kv(false), kernels::cpu::dense_kv(true), start}};
}

EngineOptions blocks(size_t count) {
  return {.kv_memory_bytes = count * FakeForward::block_bytes(),
          .budget = {.alone_tokens = 64, .mixed_tokens = 16}};
}

uint64_t ended(const EngineStats& stats) {
  uint64_t ended = 0;
  for (const auto& count : stats.ended) ended += count;
  return ended;
}
uint64_t ended(const EngineStats& stats, FinishReason reason) {
  return stats.ended[static_cast<size_t>(reason)];
}

using Ends = std::vector<std::string>;

TEST(Failures, APrecisionThatChangesInsideOfAnAtomicStepEndsItsOwnRequestOnly) {
  LoopScene scene(blocks(100));
  scene.submit(2, 10, 100);
  scene.step();
  scene.precision = changing_at(100);
  scene.submit(1, 150, 10, {.choices = 2, .atomic = {{80, 120}}});
  scene.submit(0, 150, 10);
  scene.run(500);
  EXPECT_EQ(scene.consumers[1].ends, (Ends{"error", "error"}));
  EXPECT_NE(scene.consumers[1].error.find("--kv-start"), std::string::npos);
  EXPECT_EQ(scene.consumers[2].ends, Ends{"length"});
  EXPECT_EQ(scene.consumers[0].ends, Ends{"length"}) << "its precision changes between two steps";
  EXPECT_EQ(scene.stats().failed_forwards, 0U);
  EXPECT_EQ(scene.stats().kv_used_bytes, 0U);
  scene.submit(1, 150, 10, {.choices = 2});
  scene.run(500);
  EXPECT_EQ(scene.consumers[1].ends, (Ends{"length", "length"}));
}

TEST(Failures, AChangeOfPrecisionThatMemoryCannotHoldEvenAloneEndsItsOwnRequestOnly) {
  LoopScene scene(blocks(2));
  scene.precision = changing_at(128);
  scene.submit(1, 200, 10);  // two blocks, and for a moment two halves of one
  scene.submit(0, 60, 20);
  scene.run(500);
  EXPECT_EQ(scene.consumers[1].ends, Ends{"error"});
  EXPECT_NE(scene.consumers[1].error.find("memory"), std::string::npos) << scene.consumers[1].error;
  EXPECT_EQ(scene.consumers[0].ends, Ends{"length"});
  EXPECT_EQ(scene.stats().kv_used_bytes, 0U);
}

TEST(Failures, AChangeOfPrecisionThatMemoryCanHoldAloneMakesOthersWait) {
  LoopScene scene(blocks(6));
  scene.precision = changing_at(200);
  scene.submit(1, 64, 140);
  scene.submit(0, 60, 130);
  scene.precision = FakeForward::precision();
  scene.submit(2, 60, 300);
  scene.run(2000);
  for (auto& [number, consumer] : scene.consumers) EXPECT_EQ(consumer.ends, Ends{"length"});
  EXPECT_GT(scene.stats().preemptions, 0U);
  EXPECT_EQ(scene.stats().kv_used_bytes, 0U);
}

TEST(Failures, OneChoiceThatFailsEndsTheOthersAndTheRequestCountsOnce) {
  LoopScene scene;
  int samples = 0;
  scene.forward().on_logits = [&](int32_t, std::span<float> logits) {
    if (++samples == 3) std::ranges::fill(logits, std::numeric_limits<float>::quiet_NaN());
  };
  scene.submit(1, 10, 2, {.choices = 2}, 100);  // both would end in the same iteration
  scene.run(20);
  EXPECT_EQ(scene.consumers[1].ends, (Ends{"error", "error"}));
  EXPECT_EQ(ended(scene.stats()), 1U);
  EXPECT_EQ(ended(scene.stats(), FinishReason::kError), 1U);
  EXPECT_EQ(scene.stats().rows, 0U);
}

TEST(Failures, AConsumerThatCannotBeToldOfTheEndIsCountedToo) {
  LoopScene scene;
  const LoopScene::Consumer& bad = scene.submit(1, 10, 1);
  bad.stream->on_ready([] { throw std::runtime_error("no memory to post a wake-up"); });
  scene.submit(2, 10, 5);
  scene.run(20);
  EXPECT_EQ(bad.ends, Ends{"length"}) << "what it can read when it looks by itself";
  EXPECT_EQ(scene.consumers[2].ends, Ends{"length"});
  EXPECT_EQ(ended(scene.stats()), 2U);
  EXPECT_EQ(scene.stats().rows, 0U);
}

/// An engine with its thread.
class FailingEngine : public testing::Test {
 protected:
  Engine& start(EngineOptions options = {}) {
    return engine_.emplace(forward_, FakeForward::layers(), cpu_, test::scene_tokenizer(),
                           std::set<int32_t>{}, std::move(options));
  }
  std::shared_ptr<Stream> submit(int32_t number, int64_t prompt, int64_t max_tokens) {
    auto stream = std::make_shared<Stream>(static_cast<size_t>(prompt), 0, size_t{1} << 20);
    engine_->submit({{.prompt = FakeForward::prompt(number, prompt)},
                     {.temperature = 0},
                     max_tokens,
                     FakeForward::precision(),
                     stream});
    return stream;
  }

  FakeForward forward_;
  kernels::cpu::Cpu cpu_{1};
  std::optional<Engine> engine_;
};

TEST_F(FailingEngine, AThreadThatEndsTellsEverybodyAndIsNotAlive) {
  std::latch submitted(1);
  forward_.on_begin = [&] {
    submitted.wait();
    throw Error(ErrorKind::kUnsupported, "no such device");
  };
  Engine& engine = start();
  const auto one = submit(1, 10, 5), two = submit(2, 100, 5);
  EXPECT_TRUE(engine.alive());
  submitted.count_down();
  for (const auto& stream : {one, two}) {
    const test::Answer failed = collect(*stream);
    EXPECT_TRUE(failed.ids.empty());
    ASSERT_EQ(failed.finish, FinishReason::kError);
    EXPECT_EQ(failed.error->kind(), ErrorKind::kUnsupported);
    EXPECT_STREQ(failed.error->what(), "no such device");
    stream->cancel();
  }
  EXPECT_FALSE(engine.alive());
  EXPECT_FALSE(engine.draining());
  EXPECT_TRUE(eventually([&] { return engine.stats().waiting == 0; }));
  EXPECT_EQ(engine.stats().waiting_tokens, 0U);
  EXPECT_EQ(ended(engine.stats(), FinishReason::kError), 2U);
  try {
    submit(3, 10, 5);
    ADD_FAILURE() << "a dead engine took a request";
  } catch (const Error& refusal) {
    EXPECT_EQ(refusal.kind(), ErrorKind::kUnavailable);
    EXPECT_STREQ(refusal.what(), "the engine has stopped after a failure");
  }
  EXPECT_EQ(engine.stats().waiting, 0U);
}

TEST_F(FailingEngine, AfterEveryFailureOfARowTheEngineIsAliveAndTheNextRequestWorks) {
  std::atomic<bool> forwards_fail = false, samples_fail = false;
  forward_.on_run = [&](std::span<const model::TokenGroup> groups) {
    for (const model::TokenGroup& group : groups) {
      if (forwards_fail && FakeForward::request_of(group.ids.front()) == 1) {
        throw std::runtime_error("no forward");
      }
    }
  };
  forward_.on_logits = [&](int32_t id, std::span<float> logits) {
    if (samples_fail && FakeForward::request_of(id) == 1) {
      std::ranges::fill(logits, std::numeric_limits<float>::quiet_NaN());
    }
  };
  Engine& engine = start({.prompt_cache_bytes = size_t{1} << 20});
  const auto running = submit(2, 10, 1 << 20);
  ASSERT_TRUE(eventually([&] { return engine.stats().generated_tokens > 0; }));
  for (std::atomic<bool>* failing : {&forwards_fail, &samples_fail, &forwards_fail}) {
    *failing = true;
    const test::Answer failed = collect(*submit(1, 100, 5));
    EXPECT_TRUE(failed.ids.empty());
    ASSERT_EQ(failed.finish, FinishReason::kError);
    EXPECT_EQ(failed.error->kind(),
              failing == &samples_fail ? ErrorKind::kModelFailure : ErrorKind::kInternal);
    EXPECT_TRUE(engine.alive());
    *failing = false;
    EXPECT_EQ(collect(*submit(1, 100, 5)).finish, FinishReason::kLength) << "the same once more";
    EXPECT_GT(running->open_choices(), 0);
  }
  running->cancel();
  std::vector<int32_t> all = FakeForward::prompt(2, 10);
  for (int32_t id : collect(*running).ids) {
    ASSERT_EQ(id, FakeForward::next(all));
    all.push_back(id);
  }
  EXPECT_EQ(ended(engine.stats(), FinishReason::kError), 3U);
}

}  // namespace
}  // namespace cohort::engine
