// What the loop keeps for later, prefixes and objects: one budget, and the loop's own clock.

#include "tests/store/objects.h"
#include "tests/store/ssd_scene.h"
#include "tests/support/loop_scene.h"

namespace cohort::engine {
namespace {

using namespace std::chrono_literals;
using store::test::some_object;
using test::LoopScene;

EngineOptions options(size_t budget_bytes) {
  EngineOptions options;
  options.prompt_cache_bytes = budget_bytes;
  return options;
}

TEST(Kept, WhatNobodyUsesLeavesMemoryByTheLoopsClockAndIsOnSsd) {
  const store::test::TempFolder folder;
  EngineOptions with_ssd = options(1 << 20);
  with_ssd.ssd = store::test::options(folder.path);
  with_ssd.demote_idle = 60s;
  LoopScene scene(with_ssd);
  store::ObjectCache& objects = scene.loop().objects();
  EXPECT_FALSE(scene.loop().demotes());
  scene.submit(1, 100, 5);
  scene.run(200);
  objects.put("key", some_object(1));
  scene.loop().ssd()->offer_object("key", some_object(1));
  ASSERT_TRUE(scene.loop().ssd()->flush(20s));
  scene.advance(30s);
  EXPECT_TRUE(objects.take("key"));
  scene.advance(30s);
  scene.step();
  EXPECT_EQ(scene.loop().prefix_stats().entries, 1U) << "just not before that";
  scene.advance(1s);
  scene.step();
  EXPECT_EQ(scene.loop().prefix_stats().entries, 0U);
  EXPECT_EQ(objects.stats().entries, 1U);
  EXPECT_TRUE(scene.loop().demotes());
  scene.advance(30s);
  scene.step();
  EXPECT_EQ(objects.stats().entries, 0U);
  EXPECT_FALSE(scene.loop().demotes());
  LoopScene::Consumer& again = scene.submit(1, 100, 5);
  for (int i = 0; i < 20000 && !again.over; ++i) {
    scene.step();
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_GT(again.stream->cached_tokens(), 0U);
  EXPECT_TRUE(scene.loop().ssd()->restore_object("key"));
}

TEST(Kept, ObjectsAndPrefixesOfRowsShareTheBudget) {
  LoopScene scene(options(1 << 20));
  scene.submit(1, 100, 5);
  scene.run(200);
  const size_t prefix = scene.stats().prefix_bytes;
  ASSERT_GT(prefix, 0U);
  store::ObjectCache& objects = scene.loop().objects();
  for (uint32_t i = 0; i < 20; ++i) objects.put(std::to_string(i), some_object(i, 60));
  scene.step();
  EXPECT_EQ(scene.loop().prefix_stats().entries, 0U);
  EXPECT_EQ(scene.stats().prefix_evictions, 1U);
  EXPECT_GT(objects.stats().entries, 10U);
  for (int32_t number = 2; number < 20; ++number) {
    scene.submit(number, 400, 5);
    scene.run(200);
  }
  EXPECT_GT(objects.stats().evictions, 0U);
  EXPECT_LE(objects.stats().bytes + scene.stats().prefix_bytes, size_t{1} << 20);
}

}  // namespace
}  // namespace cohort::engine
