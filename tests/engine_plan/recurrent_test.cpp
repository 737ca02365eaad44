// Prefixes of models with recurrent layers, whose state cannot be cut back: which of them are
// reused, and that nobody's answer changes by it. Every token is compared by the scene.

#include <random>

#include "kv/fit.h"
#include "tests/support/loop_scene.h"
#include "tests/support/temp_folder.h"

namespace cohort::engine {
namespace {

using namespace std::chrono_literals;
using test::FakeForward;
using test::LoopScene;
using test::TempFolder;
using Ids = std::vector<int32_t>;

/// Random ids of request 1.
Ids some_ids(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Ids ids(count);
  for (int32_t& id : ids) id = FakeForward::kSpan + static_cast<int32_t>(random() % 100);
  return ids;
}
Ids operator+(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
Ids first(const Ids& ids, ptrdiff_t count) {
  return {ids.begin(), ids.begin() + count};
}

struct FakeModel {
  const char* name;
  FakeForward::Layers layers;
};

std::vector<FakeModel> models() {
  constexpr kv::LayerSpec kWindow{.kv_heads = 1, .head_dim = 16, .window = 100};
  return {{"Alone", {FakeForward::kRecurrent}},
          {"BesideAttention", {FakeForward::kAttention, FakeForward::kRecurrent}},
          {"BesideAWindow", {FakeForward::kRecurrent, kWindow}}};
}

void PrintTo(const FakeModel& model, std::ostream* out) {
  *out << model.name;
}

class Recurrent : public testing::TestWithParam<FakeModel> {
 protected:
  static constexpr int64_t kAnswer = 5;        // tokens
  static constexpr int32_t kEndOfTurn = 2999;  // never sampled

  void start(EngineOptions options) {
    options.budget = {.alone_tokens = 300, .mixed_tokens = 64};
    scene_.emplace(std::move(options), GetParam().layers, std::set<int32_t>{kEndOfTurn});
  }
  void start_with_ssd(size_t prompt_cache_bytes) {
    start({.prompt_cache_bytes = prompt_cache_bytes,
           .ssd = store::SsdOptions{.folder = folder_.path, .identity = "fake"}});
  }
  ///   returns  how much of the prompt was found
  size_t ask(const Ids& prompt) {
    LoopScene::Consumer& consumer = scene_->submit(1, 0, kAnswer, {.prompt = prompt});
    scene_->run(1000);
    EXPECT_EQ(consumer.ends.front(), "length") << consumer.error;
    answer_ = consumer.ids.front();
    return consumer.stream->cached_tokens();
  }
  store::SsdStore& ssd() { return *scene_->loop().ssd(); }

  const TempFolder folder_;  // outlives those who write to it
  std::optional<LoopScene> scene_;
  Ids answer_;
};

TEST_P(Recurrent, WhatIsReusedEndsAtACheckpointOrWhereARowEnded) {
  start({.prompt_cache_bytes = size_t{1} << 20});
  const Ids prompt = some_ids(1300, 1), more = some_ids(40, 2);
  EXPECT_EQ(ask(prompt), 0U);
  const Ids next_turn = prompt + answer_ + more;
  EXPECT_EQ(ask(prompt), 1299U);
  EXPECT_EQ(ask(prompt), 1299U);
  EXPECT_EQ(ask(next_turn), 1304U) << "the last token of an answer is in no cache";
  EXPECT_EQ(ask(next_turn), 1344U);
  EXPECT_EQ(ask(first(prompt, 1100)), 1024U);
  EXPECT_EQ(ask(first(prompt, 1025)), 1024U);
  EXPECT_EQ(ask(first(prompt, 1024)), 512U) << "the last token is always computed";
  EXPECT_EQ(ask(first(prompt, 700) + more), 512U);
  EXPECT_EQ(ask(first(prompt, 700) + some_ids(50, 3)), 512U);
  EXPECT_EQ(ask(first(prompt, 700) + some_ids(60, 4)), 512U);
  EXPECT_EQ(ask(first(prompt, 511) + more), 0U);
}

TEST_P(Recurrent, ShortPromptsHaveNoCheckpointButTheirNextTurnIsFound) {
  start({.prompt_cache_bytes = size_t{1} << 20});
  for (const size_t length : {1, 2, 64, 100, 256}) {
    SCOPED_TRACE(length);
    const Ids prompt = some_ids(length, static_cast<uint32_t>(length));
    EXPECT_EQ(ask(prompt), 0U);
    const Ids next_turn = prompt + answer_ + some_ids(3, 1);
    EXPECT_EQ(ask(prompt), 0U);
    EXPECT_EQ(ask(next_turn), length + kAnswer - 1);
  }
  const Ids prompt = some_ids(257, 257);
  EXPECT_EQ(ask(prompt), 0U);
  EXPECT_EQ(ask(prompt), 256U);
}

TEST_P(Recurrent, AfterARestartTheEndsOfPromptsAndRowsAreFound) {
  start_with_ssd(size_t{1} << 20);
  const Ids prompt = some_ids(1300, 1), more = some_ids(40, 2);
  ask(prompt);
  const Ids next_turn = prompt + answer_ + more;
  EXPECT_TRUE(ssd().flush(20s));
  EXPECT_EQ(ssd().stats().written, 2U);
  start_with_ssd(0);
  EXPECT_TRUE(ssd().flush(20s)) << "the folder is looked through";
  EXPECT_EQ(ask(prompt), 1299U);
  EXPECT_EQ(ask(prompt), 1299U);
  EXPECT_EQ(ask(next_turn), 1304U);
  EXPECT_EQ(ask(first(prompt, 1100)), 0U) << "checkpoints are in memory only";
  EXPECT_EQ(ask(first(prompt, 700) + more), 0U);
  EXPECT_EQ(ssd().stats().hits, 3U);
  EXPECT_TRUE(ssd().flush(20s));
  EXPECT_EQ(ask(next_turn), 1344U);
}

TEST_P(Recurrent, ConversationsAreFoundWhereTheirFirstAndLastTurnsEnded) {
  start_with_ssd(size_t{1} << 20);
  const Ids end = {kEndOfTurn}, opening = some_ids(4, 1);
  const Ids system = some_ids(299, 2) + end, question = some_ids(199, 3) + end;
  EXPECT_EQ(ask(system + question + opening), 0U);
  for (const bool restarted : {false, true}) {
    SCOPED_TRACE(restarted);
    if (restarted) {
      EXPECT_TRUE(ssd().flush(20s));
      start_with_ssd(0);
      EXPECT_TRUE(ssd().flush(20s));
    }
    const uint32_t seed = restarted ? 20 : 10;
    const Ids other_question = some_ids(100, seed) + end;
    EXPECT_EQ(ask(system + other_question + opening), 300U);
    const Ids answer_as_the_template_has_it = some_ids(10, seed + 1);
    EXPECT_EQ(ask(system + question + answer_as_the_template_has_it), 500U);
  }
}

TEST_P(Recurrent, WhatWasRestoredIsFoundInMemoryTheNextTime) {
  start_with_ssd(0);
  const Ids prompt = some_ids(700, 1);
  ask(prompt);
  EXPECT_TRUE(ssd().flush(20s));
  start_with_ssd(size_t{1} << 20);
  EXPECT_TRUE(ssd().flush(20s));
  EXPECT_EQ(ask(prompt), 699U);
  EXPECT_EQ(ask(prompt), 699U);
  EXPECT_EQ(ssd().stats().hits, 1U);
}

TEST_P(Recurrent, RowsThatGiveWayGoOnWithTheSameTokens) {
  start(
      {.kv_memory_bytes = 22 * FakeForward::block_bytes(), .prompt_cache_bytes = size_t{1} << 20});
  for (int32_t number = 1; number <= 6; ++number) {
    // Two are the same, so that one may begin with what the other left.
    scene_->submit(number, 500, 300, {.prompt = FakeForward::prompt(number / 2, 500)});
  }
  scene_->run(20000);
  for (const auto& [number, consumer] : scene_->consumers) {
    EXPECT_EQ(consumer.ends.front(), "length") << consumer.error;
  }
  // A row that is let in has all the state that it will ever need; blocks, it needs more and more.
  const bool blocks = std::ranges::any_of(GetParam().layers, [](const kv::AnyLayerSpec& layer) {
    const auto* attention = std::get_if<kv::LayerSpec>(&layer);
    return attention != nullptr && attention->window == 0;
  });
  EXPECT_EQ(scene_->stats().preemptions > 0, blocks);
  scene_->loop().forget_prefixes();
  EXPECT_EQ(scene_->stats().kv_used_bytes, 0U);
}

TEST(RecurrentChoices, EachHasAStateOfItsOwnWhereNewcomersNeedMemory) {
  const FakeForward::Layers layers{FakeForward::kRecurrent};
  const size_t row_bytes = kv::peak_bytes(FakeForward::precision(), layers, 50, 2048);
  LoopScene scene({.kv_memory_bytes = 5 * row_bytes}, layers);
  scene.submit(1, 20, 30, {.choices = 5});
  for (int i = 0; i < 5; ++i) scene.step();
  EXPECT_EQ(scene.stats().rows, 5U);
  scene.submit(2, 20, 30);
  scene.step();
  EXPECT_EQ(scene.stats().waiting, 1U);
  scene.run(1000);
  EXPECT_EQ(scene.consumers[2].ends.front(), "length");
}

INSTANTIATE_TEST_SUITE_P(Layers, Recurrent, testing::ValuesIn(models()),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace cohort::engine
