// Which entries stay when the budget is too small for all: what users come back to.

#include <gtest/gtest.h>

#include "store/prefix_cache.h"
#include "tests/store/prefix_rows.h"

namespace cohort::store::test {
namespace {

const Namespace kSpace = "model";

/// A conversation whose template takes the thoughts out of earlier answers, or does not.
struct Conversation {
  PrefixModel& model;
  PrefixCache& cache;
  uint32_t seed;
  std::string session;
  bool thinks;
  Ids prompt;  // of the next turn

  /// A turn, as the engine runs it.
  ///   returns  how many tokens came from the cache
  int64_t turn() {
    auto hit = cache.take(kSpace, prompt);
    kv::RowCache row = hit ? std::move(hit->cache) : model.row();
    const int64_t found = hit ? hit->tokens : 0;
    model.feed(row, prompt);
    put(row, prompt);
    const Ids thoughts = thinks ? some_ids(30, ++seed) : Ids{};
    const Ids answer = some_ids(40, ++seed), question = some_ids(20, ++seed);
    model.feed(row, prompt + thoughts + answer);
    put(row, prompt + thoughts + answer);
    prompt = prompt + answer + question;
    return found;
  }
  void put(const kv::RowCache& row, const Ids& ids) {
    cache.put(kSpace, ids, row.clone(), {session});
  }
};

void ask_once(PrefixModel& model, PrefixCache& cache, uint32_t seed) {
  const Ids ids = some_ids(100, seed);
  EXPECT_FALSE(cache.take(kSpace, ids));
  cache.put(kSpace, ids, model.row_of(ids));
}

size_t bytes_of(PrefixModel& model, const Ids& ids) {
  PrefixCache cache(SIZE_MAX);
  cache.put(kSpace, ids, model.row_of(ids));
  return cache.stats().bytes;
}

TEST(PrefixRetention, TwoConversationsThatAlternateBothHit) {
  for (const auto& [name, layers] : models()) {
    for (const bool thinks : {false, true}) {
      for (const std::string session : {"", "session "}) {
        SCOPED_TRACE(name + (thinks ? " thinks " : " ") + session);
        PrefixModel model(layers);
        constexpr int kTurns = 8;
        // Two final states and little more; where states are kept for each turn, some of those.
        const size_t whole = bytes_of(model, some_ids(100 + kTurns * 60, 1));
        const size_t turns = name == "plain" || name == "delayed" ? 1 : 5;
        PrefixCache cache(2 * whole + turns * bytes_of(model, some_ids(90, 1)));
        Conversation a{model, cache, 1000, session.empty() ? "" : "a", thinks, some_ids(100, 1)};
        Conversation b{model, cache, 2000, session.empty() ? "" : "b", thinks, some_ids(100, 2)};
        for (int turn = 0; turn < kTurns; ++turn) {
          for (Conversation* each : {&a, &b}) {
            const auto length = static_cast<int64_t>(each->prompt.size());
            const int64_t found = each->turn();
            EXPECT_GE(found, turn > 0 ? length - 60 : 0) << turn;
            model.check(cache);
          }
        }
      }
    }
  }
}

TEST(PrefixRetention, ACrowdOfSinglePromptsDoesNotDriveOutASession) {
  for (const auto& [name, layers] : models()) {
    SCOPED_TRACE(name);
    PrefixModel model(layers);
    PrefixCache cache(6 * bytes_of(model, some_ids(400, 1)));
    Conversation agent{model, cache, 1000, "agent", true, some_ids(100, 1)};
    agent.turn();
    for (int turn = 0; turn < 3; ++turn) {
      for (uint32_t i = 0; i < 60; ++i) ask_once(model, cache, 5000 + 100 * turn + i);
      const auto length = static_cast<int64_t>(agent.prompt.size());
      EXPECT_GE(agent.turn(), length - 60);
    }
    EXPECT_GT(cache.stats().evictions, 100U);
    model.check(cache);
  }
}

TEST(PrefixRetention, SessionsThatNobodyComesBackToGoInTheEnd) {
  PrefixModel model({plain_layer()});
  PrefixCache cache(4 * bytes_of(model, some_ids(400, 1)));
  for (uint32_t i = 0; i < 4; ++i) {
    const Ids ids = some_ids(380, i);
    cache.put(kSpace, ids, model.row_of(ids), {"old " + std::to_string(i)});
  }
  Conversation nameless{model, cache, 1000, "", false, some_ids(100, 10)};
  nameless.turn();
  EXPECT_GT(nameless.turn(), 0) << "what was kept last stays, session or not";
  for (uint32_t i = 0; i < PrefixCache::kSessionUses / 2 + 20; ++i)
    ask_once(model, cache, 5000 + i);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_FALSE(cache.take(kSpace, some_ids(380, i))) << i;
  model.check(cache);
}

TEST(PrefixRetention, OnlyTheLatestEntriesOfASessionAreItsOwn) {
  PrefixModel model({recurrent_layer()});
  const Ids ids = some_ids(300, 1);
  PrefixCache cache(5 * bytes_of(model, ids));
  kv::RowCache row = model.row();
  for (const int64_t tokens : {100, 150, 200, 250}) {
    model.feed(row, first(ids, tokens));
    cache.put(kSpace, ids, row.clone(), {"agent"});
  }
  for (uint32_t i = 0; i < 20; ++i) ask_once(model, cache, 5000 + i);
  EXPECT_EQ(cache.take(kSpace, ids)->tokens, 250);
  EXPECT_EQ(cache.take(kSpace, first(ids, 230))->tokens, 200);
  EXPECT_FALSE(cache.take(kSpace, first(ids, 190)));
  model.check(cache);
}

TEST(PrefixRetention, ASharedPrefixOutlivesTheConversationsThatBeganWithIt) {
  for (const auto& [name, layers] : models()) {
    SCOPED_TRACE(name);
    PrefixModel model(layers);
    PrefixCache cache(6 * bytes_of(model, some_ids(250, 1)));
    const Ids system = some_ids(200, 1);
    cache.put(kSpace, system, model.row_of(system), {.shared_hint = true});
    for (uint32_t i = 0; i < 3; ++i) {
      const Ids prompt = system + some_ids(30, 10 + i);
      auto hit = cache.take(kSpace, prompt);
      ASSERT_EQ(hit->tokens, 200);
      model.feed(hit->cache, prompt);
      cache.put(kSpace, prompt, std::move(hit->cache));
    }
    for (uint32_t i = 0; i < 100; ++i) ask_once(model, cache, 5000 + i);
    EXPECT_EQ(cache.take(kSpace, system + some_ids(30, 10))->tokens, 200);
    for (uint32_t i = 0; i < PrefixCache::kSharedUses / 2 + 20; ++i)
      ask_once(model, cache, 6000 + i);
    EXPECT_FALSE(cache.take(kSpace, system + some_ids(30, 10))) << "but not forever";
    model.check(cache);
  }
}

TEST(PrefixRetention, AThirdContinuationShowsThatAPrefixIsShared) {
  for (const auto& [name, layers] : models()) {
    SCOPED_TRACE(name);
    PrefixModel model(layers);
    PrefixCache cache(8 * bytes_of(model, some_ids(250, 1)));
    const Ids system = some_ids(200, 1);
    for (int32_t i = 0; i < 3; ++i) {
      const Ids prompt = system + Ids{1000 + i} + some_ids(30, 10);
      auto hit = cache.take(kSpace, prompt);
      kv::RowCache row = hit ? std::move(hit->cache) : model.row();
      model.feed(row, system);
      if (i == 0 && row.trim_floor() == row.offset()) cache.put(kSpace, system, row.clone());
      model.feed(row, prompt);
      cache.put(kSpace, prompt, std::move(row));
      model.check(cache);
    }
    for (uint32_t i = 0; i < 100; ++i) ask_once(model, cache, 5000 + i);
    const auto hit = cache.take(kSpace, system + Ids{2000});
    ASSERT_TRUE(hit);
    const bool blocks = name == "plain" || name == "delayed";
    EXPECT_EQ(hit->tokens, blocks ? 192 : 200) << "whole blocks where it can be cut so";
    EXPECT_EQ(image(hit->cache), image(model.row_of(first(system, hit->tokens))));
    model.check(cache, {&hit->cache});
  }
}

TEST(PrefixRetention, AHitOfAPartDoesNotMakeTheRestYounger) {
  PrefixModel model({plain_layer()});
  PrefixCache cache(SIZE_MAX);
  const Ids old = some_ids(100, 1), young = some_ids(100, 2);
  cache.put(kSpace, old, model.row_of(old));
  cache.put(kSpace, young, model.row_of(young));
  cache.take(kSpace, first(old, 50) + Ids{1000});
  cache.evict_one();
  EXPECT_FALSE(cache.take(kSpace, old));
  EXPECT_TRUE(cache.take(kSpace, young + Ids{1}));
  cache.put(kSpace, old, model.row_of(old));
  cache.take(kSpace, young + Ids{1});
  cache.evict_one();
  EXPECT_TRUE(cache.take(kSpace, young));
}

}  // namespace
}  // namespace cohort::store::test
