// Objects by key, and the budget that they share with prefixes: who leaves, and what stays anyway.

#include "store/object_cache.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "tests/store/objects.h"
#include "tests/store/prefix_rows.h"
#include "tests/support/rounds.h"

namespace cohort::store::test {
namespace {

using cohort::test::rounds;

const Namespace kSpace = "model";

/// Prefixes and objects under one budget, with a clock that is set by hand.
struct Kept {
  explicit Kept(size_t budget) : retention(budget, [this] { return now; }) {}
  ~Kept() { check(); }
  void put(uint32_t seed, const PutOptions& options = {}) {
    prefixes.put(kSpace, some_ids(200, seed), model.row_of(some_ids(200, seed)), options);
    check();
  }
  void put_object(const std::string& key, ObjectLease object) {
    objects.put(key, std::move(object));
    check();
  }
  bool has(uint32_t seed) {
    return prefixes.take(kSpace, some_ids(200, seed) + Ids{1}).has_value();
  }
  bool has_object(const std::string& key) { return objects.take(key) != nullptr; }
  void check() {
    model.check(prefixes);
    objects.check_integrity();
    EXPECT_LE(prefixes.stats().bytes + objects.stats().bytes, retention.budget_bytes());
  }

  PrefixModel model{{plain_layer()}};
  Retention::Clock::time_point now{};
  Retention retention;
  store::PrefixCache prefixes{retention};
  ObjectCache objects{retention};
};

size_t prefix_bytes() {
  Kept kept(SIZE_MAX);
  kept.put(1);
  return kept.retention.bytes();
}

size_t object_bytes(const ObjectLease& object) {
  Kept kept(SIZE_MAX);
  kept.put_object("k", object);
  return kept.retention.bytes();
}

TEST(ObjectCache, FindsExactKeysOnly) {
  Kept kept(SIZE_MAX);
  kept.put_object("image 12", some_object(1));
  for (const char* key : {"image 1", "image 123", "image 12 ", "Image 12", ""}) {
    EXPECT_FALSE(kept.has_object(key)) << key;
  }
  EXPECT_FALSE(kept.has_object(std::string("image 12\0", 9)));
  const ObjectLease found = kept.objects.take("image 12");
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, *some_object(1));
  const ObjectCacheStats stats = kept.objects.stats();
  EXPECT_EQ(stats.entries, 1U);
  EXPECT_EQ(stats.hits, 1U);
  EXPECT_EQ(stats.misses, 6U);
  EXPECT_EQ(stats.evictions, 0U);
  EXPECT_GE(stats.bytes, 4096U + 12);
  EXPECT_LE(stats.bytes, 4096U + 4096);
}

TEST(ObjectCache, APutReplacesWhateverItsSize) {
  Kept kept(20'000);
  kept.put_object("a", some_object(1));
  kept.put_object("a", some_object(2));
  EXPECT_EQ(kept.objects.stats().entries, 1U);
  EXPECT_EQ(*kept.objects.take("a"), *some_object(2));
  kept.put_object("b", some_object(3));
  kept.put_object("a", some_object(4, 100));  // more than the budget
  EXPECT_FALSE(kept.has_object("a")) << "the former one is not what was put";
  EXPECT_TRUE(kept.has_object("b")) << "a put drives out others only for what is kept";
  EXPECT_EQ(kept.objects.stats().evictions, 0U);
}

TEST(ObjectCache, ALeaseOutlivesEvictionReplacementAndClear) {
  Kept kept(object_bytes(some_object(1, 30)) + 100);
  std::weak_ptr<const Object> memory;
  const std::function<void()> ends[] = {
      [&] { kept.put_object("other", some_object(2, 30)); },
      [&] { kept.put_object("key", some_object(3)); },
      [&] { kept.put(7); },
      [&] { kept.objects.clear(); },
  };
  for (const auto& end : ends) {
    kept.objects.clear();
    kept.put_object("key", some_object(1, 30));
    ObjectLease lease = kept.objects.take("key");
    memory = lease;
    end();
    EXPECT_NE(kept.objects.take("key"), lease);
    EXPECT_EQ(*lease, *some_object(1, 30));
    lease.reset();
    EXPECT_TRUE(memory.expired()) << "freed with the last lease";
  }
}

TEST(ObjectCache, WithoutABudgetNothingIsKeptAndATensorIsAsLongAsItsShapeSays) {
  Kept kept(0);
  kept.put_object("a", some_object(1));
  EXPECT_FALSE(kept.has_object("a"));
  Object object = *some_object(1);
  object.tensors[0].bytes.pop_back();
  EXPECT_THROW(kept.objects.put("b", std::make_shared<const Object>(object)), Error);
}

TEST(SharedBudget, ObjectsAndPrefixesLeaveInOneOrderOfUse) {
  const size_t prefix = prefix_bytes(), object = object_bytes(some_object(1, 14));
  Kept kept(2 * prefix + 2 * object);
  kept.put(1);
  kept.put_object("a", some_object(1, 14));
  kept.put(2);
  kept.put_object("b", some_object(2, 14));
  EXPECT_EQ(kept.retention.bytes(), 2 * prefix + 2 * object);
  kept.put_object("c", some_object(3, 14));  // the oldest is a prefix
  EXPECT_FALSE(kept.has(1));
  EXPECT_TRUE(kept.has(2));
  EXPECT_TRUE(kept.has_object("a"));
  kept.put(3);
  EXPECT_FALSE(kept.has_object("b")) << "and now the oldest is an object";
  EXPECT_TRUE(kept.has(2) && kept.has(3) && kept.has_object("a") && kept.has_object("c"));
}

TEST(SharedBudget, WhatIsUsedStaysAndWhatIsNotGoesWhateverItIs) {
  const size_t prefix = prefix_bytes(), object = object_bytes(some_object(1, 20));
  Kept kept(3 * prefix + 3 * object);
  kept.put(1);
  kept.put_object("used", some_object(1, 20));
  kept.put_object("unused", some_object(2, 20));
  for (uint32_t seed = 10; seed < 30; ++seed) {
    kept.put(seed);
    EXPECT_TRUE(kept.has_object("used")) << seed;
  }
  EXPECT_FALSE(kept.has(1));
  EXPECT_FALSE(kept.has_object("unused"));
}

TEST(SharedBudget, ASessionAndASharedPrefixOutliveACrowdOfObjects) {
  const size_t prefix = prefix_bytes(), object = object_bytes(some_object(1, 20));
  Kept kept(3 * prefix + 2 * object);
  kept.put(1, {.session = "s"});
  kept.put(2, {.shared_hint = true});
  kept.put(3);
  auto crowd = [&, next = uint32_t{100}](uint64_t uses) mutable {
    for (uint64_t i = 0; i < uses; ++i, ++next) {
      kept.objects.put(std::to_string(next), some_object(next, 20));
    }
    kept.check();
  };
  crowd(PrefixCache::kSessionUses - 10);
  EXPECT_EQ(kept.prefixes.stats().entries, 2U) << "the third had nothing to favour it";
  crowd(30);
  EXPECT_EQ(kept.prefixes.stats().entries, 1U);
  crowd(PrefixCache::kSharedUses);
  EXPECT_EQ(kept.prefixes.stats().entries, 0U);
  EXPECT_EQ(kept.model.used_bytes(), 0U);
}

TEST(SharedBudget, AnObjectHasPrefixesThatShareMemoryGoUntilItFits) {
  const Ids ids = some_ids(640, 1);
  size_t alone = 0;
  {
    Kept kept(SIZE_MAX);
    kept.prefixes.put(kSpace, ids, kept.model.row_of(ids));
    alone = kept.retention.bytes();
  }
  Kept kept(alone + 60'000);
  kept.prefixes.put(kSpace, ids, kept.model.row_of(ids), {.shared_hint = true});
  for (uint32_t i = 0; i < 5; ++i) {
    const Ids longer = ids + some_ids(20, 10 + i);
    auto hit = kept.prefixes.take(kSpace, longer);
    ASSERT_TRUE(hit);
    kept.model.feed(hit->cache, longer);
    kept.prefixes.put(kSpace, longer, std::move(hit->cache));
  }
  EXPECT_EQ(kept.prefixes.stats().entries, 6U);
  kept.put_object("a", some_object(1, 40));
  EXPECT_TRUE(kept.has_object("a"));
  EXPECT_LT(kept.prefixes.stats().entries, 5U) << "one of them frees less than the object takes";
  EXPECT_TRUE(kept.prefixes.take(kSpace, ids + Ids{1})) << "the shared one stays";
}

TEST(SharedBudget, EvictingAPrefixLeavesObjects) {
  Kept kept(SIZE_MAX);
  kept.put_object("older", some_object(1));
  kept.put(1);
  EXPECT_TRUE(kept.prefixes.evict_one());
  EXPECT_FALSE(kept.prefixes.evict_one());
  EXPECT_TRUE(kept.has_object("older"));
  EXPECT_EQ(kept.prefixes.stats().evictions, 1U);
  EXPECT_EQ(kept.objects.stats().evictions, 0U);
  kept.put(2);
  kept.objects.clear();
  kept.check();
  EXPECT_TRUE(kept.has(2));
  EXPECT_FALSE(kept.has_object("older"));
}

TEST(SharedBudget, WhatNobodyUsedForSoLongIsDroppedByTheClockItWasGiven) {
  using namespace std::chrono_literals;
  Kept kept(SIZE_MAX);
  kept.put(1);
  kept.put(2);
  kept.put_object("a", some_object(1));
  kept.put_object("b", some_object(2));
  kept.now += 10s;
  EXPECT_TRUE(kept.has(2));
  EXPECT_TRUE(kept.has_object("b"));
  kept.retention.drop_unused(kept.now - 10s);
  EXPECT_EQ(kept.retention.uses().size(), 4U) << "just not before that";
  kept.now += 1s;
  kept.retention.drop_unused(kept.now - 10s);
  kept.check();
  EXPECT_FALSE(kept.has(1));
  EXPECT_FALSE(kept.has_object("a"));
  EXPECT_TRUE(kept.has(2));
  EXPECT_TRUE(kept.has_object("b"));
  EXPECT_EQ(kept.prefixes.stats().evictions + kept.objects.stats().evictions, 0U);
}

TEST(SharedBudget, RandomUseKeepsTheBooksRight) {
  for (uint32_t round = 0; round < rounds(); ++round) {
    std::mt19937 random(round);
    Kept kept(4 * prefix_bytes() + random() % 100'000);
    std::map<std::string, std::pair<ObjectLease, uint32_t>> leases;
    for (int turn = 0; turn < 200; ++turn) {
      const auto seed = static_cast<uint32_t>(random() % 12);
      const std::string key = std::to_string(seed);
      switch (random() % 8) {
        case 0:
        case 1:
          kept.put(seed, {.session = random() % 2 ? "s" : "", .shared_hint = random() % 9 == 0});
          break;
        case 2:
          kept.has(seed);
          break;
        case 3:
        case 4:
          kept.objects.put(key, some_object(seed, 1 + seed * 4));
          break;
        case 5:
          kept.prefixes.evict_one();
          break;
        default:
          if (ObjectLease lease = kept.objects.take(key)) leases[key] = {lease, seed};
      }
      kept.check();
    }
    for (const auto& [key, lease] : leases) {
      EXPECT_EQ(*lease.first, *some_object(lease.second, 1 + lease.second * 4));
    }
    kept.prefixes.clear();
    kept.objects.clear();
    EXPECT_EQ(kept.retention.bytes(), 0U);
    EXPECT_TRUE(kept.retention.uses().empty());
  }
}

}  // namespace
}  // namespace cohort::store::test
