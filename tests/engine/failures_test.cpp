// What fails takes down its own row and nothing else; who goes away leaves nothing behind.

#include <gtest/gtest.h>
#include <mlx/primitives.h>

#include <atomic>
#include <cmath>
#include <latch>
#include <limits>
#include <set>

#include "engine/engine.h"
#include "engine/model_forward.h"
#include "kernels/cpu_node.h"
#include "model/checkpoint.h"
#include "serving/text_parts.h"
#include "tests/support/answers.h"
#include "tests/support/scripted_model.h"

namespace cohort::engine {
namespace {

namespace mx = mlx::core;

using model::TokenGroup;
using test::Answer;
using test::collect;
using test::eventually;

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer made =
      serving::load_tokenizer(model::Checkpoint::open(std::string(COHORT_GOLDENS) + "/llama"));
  return made;
}

/// Of the one layer that a scripted model has.
kv::RowPrecision dense() {
  return kv::RowPrecision(1);
}

/// An engine over a model that counts. Hooks are set before the first request.
class FailingEngine : public testing::Test {
 protected:
  Engine& start(EngineOptions options = {}) {
    engine_ = std::make_unique<Engine>(forward_, model_.shape().layers, cpu_, tokenizer(),
                                       std::set<int32_t>{}, std::move(options));
    return *engine_;
  }

  std::shared_ptr<Stream> submit(std::vector<int32_t> prompt, int64_t max_tokens,
                                 size_t capacity = 64, std::vector<std::string> stop = {}) {
    auto stream = std::make_shared<Stream>(prompt.size(), 0, capacity);
    engine_->submit({{.prompt = std::move(prompt), .stop = std::move(stop)},
                     {.temperature = 0},
                     max_tokens,
                     dense(),
                     stream});
    return stream;
  }

  test::ScriptedModel model_;
  ModelForward forward_{model_, Device::kCpu};
  kernels::cpu::Cpu cpu_{1};
  std::unique_ptr<Engine> engine_;
};

bool holds(std::span<const TokenGroup> groups, int32_t id) {
  for (const TokenGroup& group : groups) {
    if (std::ranges::find(group.ids, id) != group.ids.end()) return true;
  }
  return false;
}

std::vector<int32_t> counting(int32_t first, size_t count) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(first + static_cast<int32_t>(i));
  return ids;
}

TEST_F(FailingEngine, ARowWhoseSamplerFailsIsTheOnlyOneToFail) {
  model_.on_logits = [](int32_t token, std::span<float> logits) {
    if (token == 15) std::ranges::fill(logits, std::numeric_limits<float>::quiet_NaN());
  };
  Engine& engine = start();
  const auto bad = submit({10}, 50), good = submit({100}, 50);
  const Answer failed = collect(*bad), whole = collect(*good);
  EXPECT_EQ(failed.ids, counting(11, 5));
  ASSERT_EQ(failed.finish, FinishReason::kError);
  EXPECT_EQ(failed.error->kind(), ErrorKind::kModelFailure);
  EXPECT_STREQ(failed.error->what(),
               "the model produced no finite logits: its weights may be damaged");
  EXPECT_EQ(whole.ids, counting(101, 50));
  EXPECT_EQ(whole.finish, FinishReason::kLength);
  EXPECT_EQ(engine.stats().failed_forwards, 0U);
  EXPECT_EQ(collect(*submit({200}, 3)).ids, counting(201, 3));
}

/// A prompt that ends in, or holds, the token that no forward survives.
std::vector<int32_t> poisoned(size_t size, size_t at) {
  std::vector<int32_t> ids(size, 5);
  ids[at] = 3;
  return ids;
}

TEST_F(FailingEngine, AForwardThatFailsOverAPromptLeavesRunningAnswersAlone) {
  model_.on_forward = [](std::span<const TokenGroup> groups) {
    if (holds(groups, 3)) throw Error(ErrorKind::kUnsupported, "not this one");
  };
  model_.on_logits = [](int32_t token, std::span<float> logits) {
    if (token == 300) logits[10] = 20;  // round and round, past the 3
  };
  Engine& engine = start({.budget = {.alone_tokens = 8, .mixed_tokens = 4}});
  const auto one = submit({10}, 1 << 18, 1 << 20), two = submit({20}, 1 << 18, 1 << 20);
  ASSERT_TRUE(eventually([&] { return engine.stats().iterations > 3; }));
  // In the middle, alone, and alone in a last chunk: a prompt of one token is still a prompt.
  for (const std::vector<int32_t>& prompt : {poisoned(20, 11), poisoned(1, 0), poisoned(21, 20)}) {
    const Answer failed = collect(*submit(prompt, 5));
    EXPECT_TRUE(failed.ids.empty());
    ASSERT_EQ(failed.finish, FinishReason::kError);
    EXPECT_EQ(failed.error->kind(), ErrorKind::kUnsupported) << "whose fault it is stays";
    EXPECT_STREQ(failed.error->what(), "not this one");
  }
  EXPECT_EQ(collect(*submit({100, 101}, 3)).ids, counting(102, 3));
  EXPECT_EQ(engine.stats().failed_forwards, 3U);
  for (const auto& [stream, first] : {std::pair{one, 11}, std::pair{two, 21}}) {
    stream->cancel();
    const Answer running = collect(*stream);
    EXPECT_EQ(running.finish, FinishReason::kCancelled);
    EXPECT_GT(running.ids.size(), 10U);
    int32_t wanted = first;
    for (int32_t id : running.ids) {
      ASSERT_EQ(id, wanted);
      wanted = id == 300 ? 10 : id + 1;
    }
  }
}

TEST_F(FailingEngine, AForwardThatAlwaysFailsEndsItsRowsAndTheEngineGoesOn) {
  std::atomic<bool> broken = true;
  model_.on_forward = [&](std::span<const TokenGroup>) {
    if (broken) throw std::runtime_error("broken");
  };
  Engine& engine = start();
  const auto one = submit({10}, 5), two = submit({20, 21, 22}, 5);
  for (const auto& stream : {one, two}) {
    const Answer failed = collect(*stream);
    ASSERT_EQ(failed.finish, FinishReason::kError);
    EXPECT_EQ(failed.error->kind(), ErrorKind::kInternal);
    EXPECT_STREQ(failed.error->what(), "broken");
  }
  EXPECT_TRUE(eventually([&] { return engine.stats().rows == 0; }));
  broken = false;
  EXPECT_EQ(collect(*submit({30}, 5)).ids, counting(31, 5));
}

/// A node that cannot be evaluated.
class Refusing : public mx::UnaryPrimitive {
 public:
  explicit Refusing(std::function<void()> before)
      : UnaryPrimitive(mx::default_stream(mx::Device::cpu)), before_(std::move(before)) {}
  const char* name() const override { return "refusing"; }
  void eval_cpu(const std::vector<mx::array>&, mx::array&) override {
    before_();
    throw std::runtime_error("refused");
  }
  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {}

 private:
  std::function<void()> before_;
};

TEST_F(FailingEngine, ARowIsNotReleasedWhileKernelsOfAFailedForwardStillWriteToIt) {
  std::atomic<bool> written = false, refused_first = false;
  model_.on_hidden = [&](std::span<const TokenGroup> groups, mx::array hidden) {
    kv::RowCache& cache = groups[0].cache;
    std::byte* const* blocks = cache.attention(0).view().blocks;
    const mx::array slow =
        kernels::cpu_node("slow", hidden.shape(), mx::float32, {hidden},
                          [&written, blocks](std::span<const void* const>, void*) {
                            std::this_thread::sleep_for(std::chrono::milliseconds(100));
                            *blocks[0] = std::byte{1};
                            written = true;
                          });
    return mx::array(slow.shape(), mx::float32,
                     std::make_shared<Refusing>([&] { refused_first = !written; }), {slow});
  };
  start();
  const Answer failed = collect(*submit({10, 11}, 5));
  EXPECT_TRUE(refused_first) << "the failure came while the kernel ran";
  EXPECT_TRUE(written) << "the row ended before its kernels";
  ASSERT_EQ(failed.finish, FinishReason::kError);
  EXPECT_STREQ(failed.error->what(), "refused");
}

/// Room for this many blocks of 64 tokens of the scripted model.
EngineOptions room_for(size_t blocks) {
  return {.kv_memory_bytes = blocks * kv::LayerSpec{1, 16}.geometry(dense()[0].then).block_bytes()};
}

TEST_F(FailingEngine, AnAnswerThatMemoryCannotHoldEvenAloneIsTheOnlyOneToFail) {
  Engine& engine = start(room_for(16));
  const auto wide = submit(std::vector<int32_t>(910, 10), 1000, 1 << 10);
  const auto good = submit({100}, 200, 1 << 10);
  const Answer failed = collect(*wide), whole = collect(*good);
  EXPECT_EQ(failed.ids, counting(11, 115)) << "to the end of the last block";
  ASSERT_EQ(failed.finish, FinishReason::kError);
  EXPECT_EQ(failed.error->kind(), ErrorKind::kOverloaded);
  EXPECT_EQ(whole.ids, counting(101, 200));
  EXPECT_EQ(engine.stats().failed_forwards, 0U);
  EXPECT_TRUE(eventually([&] { return engine.stats().kv_used_bytes == 0; }));
  EXPECT_EQ(engine.stats().rows, 0U);
}

TEST_F(FailingEngine, PromptsThatDoNotFitTogetherAreReadOneAfterTheOther) {
  Engine& engine = start(room_for(16));
  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < 6; ++i) {
    streams.push_back(submit(std::vector<int32_t>(900, 10 + 10 * i), 50));
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(collect(*streams[i]).ids, counting(11 + 10 * i, 50));
  EXPECT_EQ(engine.stats().preemptions, 0U) << "who is let in has room";
  EXPECT_TRUE(eventually([&] { return engine.stats().kv_used_bytes == 0; }));
}

TEST_F(FailingEngine, ARequestThatCannotBecomeARowSaysWhyAndLeavesNoRow) {
  Engine& engine = start();
  const Answer failed = collect(*submit({10}, 5, 64, {""}));
  ASSERT_EQ(failed.finish, FinishReason::kError);
  EXPECT_EQ(failed.error->kind(), ErrorKind::kInvalidRequest);
  EXPECT_EQ(failed.error->param(), "stop");
  EXPECT_TRUE(eventually([&] { return engine.stats().rows == 0; }, std::chrono::seconds(2)));
}

TEST_F(FailingEngine, AConsumerThatCannotBeWokenEndsItsOwnRowOnly) {
  Engine& engine = start();
  const auto bad = std::make_shared<Stream>(1, 0), good = std::make_shared<Stream>(1, 0);
  std::atomic<int> calls = 0;
  bad->on_ready([&] {
    if (++calls == 3) throw std::runtime_error("no memory to post a wake-up");
  });
  engine.submit({{.prompt = {10}}, {.temperature = 0}, 30, dense(), bad});
  engine.submit({{.prompt = {100}}, {.temperature = 0}, 30, dense(), good});
  EXPECT_EQ(collect(*good).ids, counting(101, 30));
  const Answer failed = collect(*bad);
  EXPECT_EQ(failed.ids, counting(11, 3));
  EXPECT_EQ(failed.finish, FinishReason::kError);
  bad->on_ready({});
  EXPECT_TRUE(bad->drain().empty()) << "nothing follows the last event";
  const auto worse = std::make_shared<Stream>(1, 0);
  worse->on_ready([] { throw std::runtime_error("never"); });
  engine.submit({{.prompt = {10}}, {.temperature = 0}, 1, dense(), worse});
  EXPECT_EQ(collect(*submit({200}, 3)).ids, counting(201, 3));
  EXPECT_TRUE(eventually([&] { return engine.stats().rows == 0; }));
  EXPECT_TRUE(engine.alive());
  EXPECT_EQ(collect(*worse).finish, FinishReason::kLength) << "one end, and the first one";
  worse->on_ready({});
}

TEST_F(FailingEngine, ARowCancelledWhileAnotherEndsIsEndedToo) {
  // The wake-up that tells of one row's end cancels a row that was looked at before.
  std::shared_ptr<Stream> early, late;
  std::atomic<int> until_cancel = 0;
  std::atomic<bool> go = false;
  model_.on_forward = [&](std::span<const TokenGroup> groups) {
    if (!go || groups.size() < 2 || until_cancel != 0) return;
    go = false;
    until_cancel = 2;  // the token of this iteration, then the end
    late->cancel();
  };
  Engine& engine = start();
  early = submit({10}, 1 << 18, 1 << 20);
  late = submit({20}, 1 << 18, 1 << 20);
  late->on_ready([&] {
    if (until_cancel > 0 && --until_cancel == 0) early->cancel();
  });
  go = true;
  EXPECT_EQ(collect(*late).finish, FinishReason::kCancelled);
  EXPECT_EQ(collect(*early).finish, FinishReason::kCancelled);
  EXPECT_TRUE(eventually([&] { return engine.stats().rows == 0; }));
  late->on_ready({});
}

TEST_F(FailingEngine, AWaitingRequestThatIsCancelledGivesUpItsPlaceAtOnce) {
  Engine& engine = start({.max_rows = 1, .max_waiting = 1});
  const auto running = submit({10}, 1 << 18, 2);  // full soon: the engine sleeps
  ASSERT_TRUE(eventually([&] { return running->full(); }));
  const auto waiting = std::make_shared<Stream>(1, 0, Stream::kCapacity, 2);  // no places for two
  engine.submit({{.prompt = {20}, .choices = 2}, {.temperature = 0}, 5, dense(), waiting});
  EXPECT_THROW(submit({30}, 5), Error);
  waiting->cancel();
  EXPECT_EQ(collect(*waiting).finish, FinishReason::kCancelled);
  EXPECT_TRUE(eventually([&] { return engine.stats().waiting == 0; }));
  const auto next = submit({30}, 5);
  running->cancel();
  EXPECT_EQ(collect(*next).ids, counting(31, 5));
}

TEST_F(FailingEngine, ARequestCancelledBeforeItIsTakenCostsNoForward) {
  std::atomic<int> seen = 0;
  model_.on_forward = [&](std::span<const TokenGroup> groups) { seen += holds(groups, 77); };
  start();
  for (int i = 0; i < 20; ++i) {
    const auto stream = std::make_shared<Stream>(1, 0);
    stream->cancel();
    engine_->submit({{.prompt = {77}}, {.temperature = 0}, 5, dense(), stream});
    EXPECT_EQ(collect(*stream).finish, FinishReason::kCancelled);
  }
  EXPECT_EQ(seen, 0);
}

TEST_F(FailingEngine, DestructionWhileConsumersDrainAndCancelEndsEveryStream) {
  for (int round = 0; round < 15; ++round) {
    start({.max_rows = 3});
    std::vector<std::shared_ptr<Stream>> streams;
    std::vector<std::thread> consumers;
    std::latch ready(5);
    for (int i = 0; i < 4; ++i) {
      streams.push_back(submit({10 + i}, 1 << 18, 1));  // full at every token
      consumers.emplace_back([&, i, stream = streams.back()] {
        ready.arrive_and_wait();
        for (int drains = 0;; ++drains) {
          const std::vector<TokenEvent> events = stream->drain();
          if (!events.empty() && events.back().finish) return;
          std::this_thread::yield();
          if (drains == 50 * i) stream->cancel();
        }
      });
    }
    ready.arrive_and_wait();
    std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
    engine_.reset();
    for (std::thread& consumer : consumers) consumer.join();
  }
}

}  // namespace
}  // namespace cohort::engine
