// What a prompt gets of what earlier ones left: which prefix, which bits, which memory.

#include "store/prefix_cache.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/store/prefix_rows.h"

namespace cohort::store::test {
namespace {

const Namespace kSpace = "model";

int64_t taken(PrefixCache& cache, const Ids& ids, const Namespace& space = kSpace) {
  const auto hit = cache.take(space, ids);
  EXPECT_TRUE(!hit || hit->cache.offset() == hit->tokens);
  return hit ? hit->tokens : 0;
}

size_t bytes_of(PrefixModel& model, const Ids& ids) {
  PrefixCache cache(SIZE_MAX);
  cache.put(kSpace, ids, model.row_of(ids));
  return cache.stats().bytes;
}

TEST(PrefixCache, FindsTheLongestPrefix) {
  PrefixModel model({plain_layer()});
  PrefixCache cache(SIZE_MAX);
  const Ids ids = some_ids(150, 1);
  cache.put(kSpace, ids, model.row_of(ids));
  cache.put(kSpace, first(ids, 40) + some_ids(60, 2),
            model.row_of(first(ids, 40) + some_ids(60, 2)));
  EXPECT_EQ(taken(cache, ids + some_ids(10, 3)), 150);
  EXPECT_EQ(taken(cache, first(ids, 149) + Ids{1000}), 149);
  EXPECT_EQ(taken(cache, first(ids, 40) + some_ids(30, 2) + Ids{1000, 1}), 70);
  EXPECT_EQ(taken(cache, first(ids, 40) + Ids{1000, 1}), 40);
  EXPECT_EQ(taken(cache, first(ids, 20) + Ids{1000}), 20);
  EXPECT_EQ(taken(cache, Ids{1000} + ids), 0);
  const PrefixCacheStats stats = cache.stats();
  EXPECT_EQ(stats.entries, 2U);
  EXPECT_EQ(stats.hits, 5U);
  EXPECT_EQ(stats.misses, 1U);
  EXPECT_EQ(stats.hit_tokens, 150U + 149 + 70 + 40 + 20);
  EXPECT_EQ(stats.evictions, 0U);
}

TEST(PrefixCache, TheLastTokenIsAlwaysComputed) {
  PrefixModel model({plain_layer()});
  PrefixCache cache(SIZE_MAX);
  const Ids ids = some_ids(150, 1);
  cache.put(kSpace, ids, model.row_of(ids));
  EXPECT_EQ(taken(cache, ids), 149);
  EXPECT_EQ(taken(cache, first(ids, 65)), 64);
  EXPECT_EQ(taken(cache, first(ids, 2)), 1);
  EXPECT_EQ(taken(cache, first(ids, 1)), 0);
  EXPECT_EQ(taken(cache, {}), 0);
}

TEST(PrefixCache, AHitIsARowThatStoppedThereAndItsDonorStaysAsItWas) {
  const Ids ids = some_ids(200, 1), other = some_ids(60, 2);
  for (const auto& [name, layers] : models()) {
    SCOPED_TRACE(name);
    PrefixModel model(layers);
    PrefixCache cache(SIZE_MAX);
    const kv::RowCache donor = model.row_of(ids);
    cache.put(kSpace, ids, donor.clone());
    const auto before = image(donor);
    const int64_t floor = std::max(donor.trim_floor(), donor.minimum_reusable_offset());
    for (const int64_t tokens : {1, 63, 64, 65, 89, 90, 91, 127, 128, 140, 192, 197, 199, 200}) {
      const Ids prompt = first(ids, tokens) + Ids{1000} + other;
      auto hit = cache.take(kSpace, prompt);
      ASSERT_EQ(hit.has_value(), tokens >= floor) << tokens;
      if (!hit) continue;
      ASSERT_EQ(hit->tokens, tokens);
      ASSERT_EQ(image(hit->cache), image(model.row_of(first(ids, tokens))));
      model.feed(hit->cache, prompt);
      ASSERT_EQ(image(hit->cache), image(model.row_of(prompt)));
      model.check(cache, {&donor, &hit->cache});
    }
    EXPECT_EQ(image(donor), before);
    const auto again = cache.take(kSpace, ids + Ids{1});
    EXPECT_EQ(image(again->cache), before);
  }
}

TEST(PrefixCache, NothingBelowAChangeOfPrecisionIsReused) {
  PrefixModel model({delayed_layer()});  // at 90
  PrefixCache cache(SIZE_MAX);
  const Ids ids = some_ids(150, 1);
  cache.put(kSpace, ids, model.row_of(ids));
  EXPECT_EQ(taken(cache, first(ids, 91)), 90);
  EXPECT_EQ(taken(cache, first(ids, 90)), 0);
  cache.put(kSpace, ids, model.row_of(first(ids, 80)));  // the tokens of the snapshot count
  EXPECT_EQ(cache.stats().entries, 2U);
  EXPECT_EQ(taken(cache, first(ids, 90)), 80);
  EXPECT_EQ(taken(cache, first(ids, 70) + Ids{1000}), 70);
  EXPECT_EQ(taken(cache, ids + Ids{1}), 150);
}

TEST(PrefixCache, AChangeOfPrecisionThatAnEntryOwesTheHitOwes) {
  PrefixModel model({delayed_layer(), plain_layer()});
  PrefixCache cache(SIZE_MAX);
  const Ids ids = some_ids(150, 1);
  kv::RowCache row = model.row_of(first(ids, 89));
  row.reserve(1);
  for (const size_t layer : {0, 1}) {
    kv::test::write_tokens(row.layer(layer), 1, static_cast<uint32_t>(ids[89]) * 4);
  }
  row.commit(1);  // at 90, and not maintained
  cache.put(kSpace, ids, std::move(row));
  for (const int64_t tokens : {60, 89, 90}) {
    const Ids prompt = first(ids, tokens) + some_ids(50, 3);
    auto hit = cache.take(kSpace, prompt);
    ASSERT_TRUE(hit);
    EXPECT_EQ(hit->tokens, tokens);
    EXPECT_EQ(hit->cache.max_append_tokens(), 90 - tokens);
    hit->cache.maintain(model.cpu);
    model.feed(hit->cache, prompt);
    EXPECT_EQ(image(hit->cache), image(model.row_of(prompt)));
  }
}

TEST(PrefixCache, StateThatCannotBeCutServesItsExactOffsets) {
  PrefixModel model({plain_layer(), recurrent_layer()});
  PrefixCache cache(SIZE_MAX);
  const Ids ids = some_ids(200, 1);
  kv::RowCache row = model.row();
  for (const int64_t tokens : {30, 64, 100, 150}) {
    model.feed(row, first(ids, tokens));
    cache.put(kSpace, ids, row.clone());
  }
  EXPECT_EQ(cache.stats().entries, 4U) << "none can stand for another";
  for (const auto& [prompt, tokens] : {std::pair{20, 0},
                                       {30, 0},
                                       {31, 30},
                                       {64, 30},
                                       {65, 64},
                                       {100, 64},
                                       {101, 100},
                                       {150, 100},
                                       {151, 150},
                                       {200, 150}}) {
    EXPECT_EQ(taken(cache, first(ids, prompt)), tokens) << prompt;
  }
  EXPECT_EQ(taken(cache, first(ids, 120) + Ids{1000}), 100);
  model.check(cache, {&row});
}

TEST(PrefixCache, WhereTheLongestMatchCannotBeCutAShorterOneServes) {
  PrefixModel model({plain_layer(), window_layer()});
  PrefixCache cache(SIZE_MAX);
  const Ids ids = some_ids(400, 1);
  cache.put(kSpace, first(ids, 60) + Ids{1000}, model.row_of(first(ids, 60) + Ids{1000}));
  cache.put(kSpace, ids, model.row_of(ids));  // its front blocks are gone
  EXPECT_EQ(taken(cache, first(ids, 390) + Ids{1001, 1}), 390);
  EXPECT_EQ(taken(cache, first(ids, 200) + Ids{1001, 1}), 60);
}

TEST(PrefixCache, AHitTakesNoBlockUntilItIsWrittenTo) {
  for (const auto& [name, layers] : models()) {
    SCOPED_TRACE(name);
    PrefixModel model(layers);
    PrefixCache cache(SIZE_MAX);
    const Ids ids = some_ids(200, 1);
    cache.put(kSpace, ids, model.row_of(ids));
    const size_t before = model.used_bytes();
    auto hit = cache.take(kSpace, ids + Ids{1, 2});
    ASSERT_TRUE(hit);
    EXPECT_EQ(model.used_bytes(), before);
    size_t block_of_each = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].attention() == nullptr) continue;
      block_of_each += hit->cache.attention(i).geometry().block_bytes();
    }
    hit->cache.reserve(2);
    EXPECT_EQ(model.used_bytes(), before + block_of_each) << "a copy of the open tail";
    hit.reset();
    EXPECT_EQ(model.used_bytes(), before);
  }
}

TEST(PrefixCache, WhatEntriesShareCountsOnce) {
  PrefixModel model({plain_layer(), window_layer()});
  PrefixCache cache(SIZE_MAX);
  const Ids ids = some_ids(640, 1);
  cache.put(kSpace, ids, model.row_of(ids));
  const size_t alone = cache.stats().bytes;
  for (uint32_t i = 0; i < 10; ++i) {
    const Ids prompt = ids + some_ids(20, i + 10);
    auto hit = cache.take(kSpace, prompt);
    ASSERT_EQ(hit->tokens, 640);
    model.feed(hit->cache, prompt);
    cache.put(kSpace, prompt, std::move(hit->cache));
    // Beside the state an entry takes its ids and some small things.
    const size_t entries = cache.stats().entries, bytes = cache.stats().bytes;
    EXPECT_GE(bytes, model.used_bytes());
    EXPECT_LE(bytes, model.used_bytes() + entries * 8192) << i;
  }
  EXPECT_LT(cache.stats().bytes, 11 * alone / 2) << "ten of them are no ten times as much";
  while (cache.evict_one()) {
    model.check(cache);
    EXPECT_GE(cache.stats().bytes, model.used_bytes());
  }
  EXPECT_EQ(model.used_bytes(), 0U);
  EXPECT_EQ(cache.stats().bytes, 0U);
}

TEST(PrefixCache, RecurrentStateCounts) {
  PrefixModel model({recurrent_layer()});
  PrefixCache cache(SIZE_MAX);
  const kv::RowCache row = model.row_of(some_ids(70, 1));
  cache.put(kSpace, some_ids(70, 1), row.clone());
  EXPECT_GE(cache.stats().bytes, kv::state_bytes(row.layer(0)));
}

TEST(PrefixCache, KeepsItsBudgetAndFreesVictimsAtOnce) {
  for (const auto& [name, layers] : models()) {
    SCOPED_TRACE(name);
    PrefixModel model(layers);
    const size_t one = bytes_of(model, some_ids(200, 1));
    PrefixCache cache(3 * one + one / 2);
    size_t three = 0;
    for (uint32_t seed = 0; seed < 12; ++seed) {
      cache.put(kSpace, some_ids(200, seed), model.row_of(some_ids(200, seed)));
      EXPECT_LE(cache.stats().bytes, 3 * one + one / 2);
      if (seed == 2) three = model.used_bytes();
      EXPECT_TRUE(seed <= 2 || model.used_bytes() == three);
      model.check(cache);
    }
    EXPECT_EQ(cache.stats().entries, 3U);
    EXPECT_EQ(cache.stats().evictions, 9U);
    for (uint32_t seed = 0; seed < 12; ++seed) {
      EXPECT_EQ(taken(cache, some_ids(200, seed) + Ids{1}), seed < 9 ? 0 : 200) << seed;
    }
  }
}

TEST(PrefixCache, AnEntryLargerThanTheBudgetIsNotKeptAndDrivesNothingOut) {
  PrefixModel model({plain_layer()});
  PrefixCache cache(bytes_of(model, some_ids(200, 1)));
  cache.put(kSpace, some_ids(200, 1), model.row_of(some_ids(200, 1)));
  const Ids large = some_ids(200, 1) + some_ids(200, 2);
  cache.put(kSpace, large, model.row_of(large));
  EXPECT_EQ(taken(cache, large), 200);
  EXPECT_EQ(cache.stats().evictions, 0U);
  model.check(cache);
}

TEST(PrefixCache, WithoutABudgetNothingIsKept) {
  PrefixModel model({plain_layer()});
  PrefixCache cache(0);
  cache.put(kSpace, some_ids(70, 1), model.row_of(some_ids(70, 1)), {"session", true});
  EXPECT_EQ(taken(cache, some_ids(70, 1)), 0);
  EXPECT_EQ(cache.stats().bytes, 0U);
  EXPECT_EQ(model.used_bytes(), 0U);
  EXPECT_FALSE(cache.evict_one());
}

TEST(PrefixCache, ASnapshotIsOfKnownTokensAndOfSome) {
  PrefixModel model({plain_layer()});
  PrefixCache cache(SIZE_MAX);
  EXPECT_THROW(cache.put(kSpace, some_ids(69, 1), model.row_of(some_ids(70, 1))), Error);
  cache.put(kSpace, {}, model.row());
  cache.put(kSpace, some_ids(5, 1), model.row());
  EXPECT_EQ(cache.stats().entries, 0U);
  cache.put(kSpace, Ids{3}, model.row_of(Ids{3}));
  EXPECT_EQ(taken(cache, Ids{3}), 0);
  EXPECT_EQ(taken(cache, Ids{3, 4}), 1);
  model.check(cache);
}

TEST(PrefixCache, EqualIdsHaveOneEntry) {
  PrefixModel model({plain_layer(), recurrent_layer()});
  PrefixCache cache(SIZE_MAX);
  for (int i = 0; i < 3; ++i) {
    cache.put(kSpace, some_ids(70, 1), model.row_of(some_ids(70, 1)), {"session"});
    EXPECT_EQ(cache.stats().entries, 1U);
    model.check(cache);
  }
}

TEST(PrefixCache, ALongerEntryReplacesThePrefixesThatItCanBeCutTo) {
  const Ids ids = some_ids(400, 1);
  for (const auto& [name, layers] : models()) {
    SCOPED_TRACE(name);
    PrefixModel model(layers);
    PrefixCache cache(SIZE_MAX);
    kv::RowCache row = model.row();
    for (const int64_t tokens : {50, 100, 320, 322, 400}) {
      model.feed(row, first(ids, tokens));
      cache.put(kSpace, ids, row.clone(), {"session"});
      model.check(cache, {&row});
    }
    const size_t left = name == "plain" ? 1 : name == "window" ? 3 : name == "delayed" ? 2 : 5;
    EXPECT_EQ(cache.stats().entries, left);
    EXPECT_EQ(taken(cache, first(ids, 322) + Ids{1000}), 322);
    EXPECT_EQ(taken(cache, first(ids, 50) + Ids{1000}), 50);
  }
}

TEST(PrefixCache, NamespacesDoNotMeet) {
  PrefixModel model({plain_layer()});
  PrefixCache cache(SIZE_MAX);
  const Ids ids = some_ids(70, 1);
  cache.put("a", ids, model.row_of(ids), {"session"});
  EXPECT_EQ(taken(cache, ids, "b"), 0);
  EXPECT_EQ(taken(cache, ids, "a"), 69);
  cache.put("b", ids, model.row_of(ids), {"session"});
  EXPECT_EQ(cache.stats().entries, 2U);
  model.check(cache);
}

TEST(PrefixCache, TenThousandNamespacesStayWithinTheBudget) {
  PrefixModel model({plain_layer()});
  const kv::RowCache row = model.row_of(some_ids(10, 1));
  PrefixCache cache(2 << 20);  // the block is shared; names and entries are not
  for (int i = 0; i < 10000; ++i) {
    cache.put("namespace " + std::to_string(i), some_ids(10, 1), row.clone(),
              {"session " + std::to_string(i)});
  }
  const PrefixCacheStats stats = cache.stats();
  EXPECT_LE(stats.bytes, 2U << 20);
  EXPECT_GT(stats.entries, 100U);
  EXPECT_LT(stats.entries, 2000U);
  EXPECT_EQ(stats.entries + stats.evictions, 10000U);
  EXPECT_EQ(taken(cache, some_ids(10, 1), "namespace 9999"), 9);
  EXPECT_EQ(taken(cache, some_ids(10, 1), "namespace 0"), 0);
  model.check(cache, {&row});
  cache.clear();
  EXPECT_EQ(cache.stats().entries, 0U);
  EXPECT_EQ(cache.stats().bytes, 0U);
  model.check(cache, {&row});
}

}  // namespace
}  // namespace cohort::store::test
