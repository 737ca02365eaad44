// Blocks and the memory behind them.

#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "base/error.h"

namespace cohort::kv {
namespace {

constexpr size_t kBytes = 256, kSlab = 16 * kBytes;

TEST(BlockPool, BlocksOverlapNowhereAndAreFreeAtTheLastRelease) {
  MemoryLimit limit;
  BlockPool pool(kBytes, limit);
  std::mt19937 random(1);
  std::vector<BlockId> held;  // a block as often as it has references
  for (int step = 0; step < 3000; ++step) {
    const auto what = random() % 5;
    if (what < 2 || held.empty()) {
      const BlockId fresh = pool.take();
      ASSERT_EQ(std::ranges::count(held, fresh), 0);
      std::memset(pool.address(fresh), static_cast<int>(fresh % 251), kBytes);
      held.push_back(fresh);
    } else {
      const size_t at = random() % held.size();
      const BlockId block = held[at];
      ASSERT_EQ(pool.address(block)[0], std::byte(block % 251));
      ASSERT_EQ(pool.address(block)[kBytes - 1], std::byte(block % 251));
      if (what == 2) {
        pool.share(block);
        held.push_back(block);
      } else {
        pool.release(block);
        held.erase(held.begin() + static_cast<ptrdiff_t>(at));
      }
    }
    ASSERT_EQ(pool.used_blocks(), std::set(held.begin(), held.end()).size());
    pool.check_integrity();
  }
  for (const BlockId block : held) pool.release(block);
  EXPECT_EQ(pool.used_bytes(), 0U);
  pool.check_integrity();
}

TEST(BlockPool, GivesMemoryBackButForAReserve) {
  MemoryLimit limit;
  {
    BlockPool pool(kBytes, limit);
    std::vector<BlockId> blocks;
    for (int i = 0; i < 1600; ++i) blocks.push_back(pool.take());
    EXPECT_EQ(pool.held_bytes(), 100 * kSlab);
    EXPECT_EQ(limit.held_bytes, pool.held_bytes());
    for (const BlockId block : blocks) pool.release(block);
    EXPECT_LE(pool.held_bytes(), 5 * kSlab);
    EXPECT_EQ(limit.held_bytes, pool.held_bytes());
    pool.check_integrity();
  }
  EXPECT_EQ(limit.held_bytes, 0U);
}

TEST(BlockPool, StopsAtTheLimitAndGoesOnAfterARelease) {
  MemoryLimit limit{.most_bytes = 3 * kSlab + kBytes / 2};
  BlockPool pool(kBytes, limit);
  std::vector<BlockId> blocks;
  for (int i = 0; i < 48; ++i) blocks.push_back(pool.take());
  for (int i = 0; i < 2; ++i) {
    try {
      pool.take();
      FAIL() << "there are three slabs";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kOverloaded);
    }
    pool.check_integrity();
  }
  pool.release(blocks[20]);
  EXPECT_EQ(pool.take(), blocks[20]);
  pool.check_integrity();
}

TEST(BlockPool, EveryBlockWithinTheLimitIsToBeHad) {
  MemoryLimit limit{.most_bytes = 100 * kBytes};
  BlockPool pool(kBytes, limit), other(3 * kBytes, limit);
  std::vector<BlockId> blocks;
  for (int i = 0; i < 70; ++i) blocks.push_back(pool.take());
  for (int i = 0; i < 10; ++i) other.take();
  EXPECT_EQ(limit.used_bytes, limit.most_bytes);
  EXPECT_THROW(pool.take(), Error);
  EXPECT_THROW(other.take(), Error);
  // However the free blocks lie: a block of another size costs at most a slab more.
  for (size_t i = 0; i < 70; i += 2) pool.release(blocks[i]);
  for (int i = 0; i < 11; ++i) other.take();
  EXPECT_THROW(other.take(), Error);
  EXPECT_LE(limit.held_bytes, 5 * kSlab + 2 * 3 * kSlab);
  pool.check_integrity();
  other.check_integrity();
}

TEST(BlockPool, TakesWhatOtherPoolsHoldForTheirNextRow) {
  MemoryLimit limit{.most_bytes = 16 * 4096};
  BlockPool first(4096, limit), second(2048, limit);
  first.release(first.take());
  EXPECT_GT(first.held_bytes(), 0U) << "in reserve";
  const BlockId block = second.take();
  EXPECT_EQ(first.held_bytes(), 0U);
  EXPECT_EQ(limit.held_bytes, second.held_bytes());
  second.release(block);
  first.check_integrity();
  second.check_integrity();
}

TEST(BlockPool, IntegrityFindsACountThatIsOff) {
  MemoryLimit limit;
  BlockPool pool(kBytes, limit);
  const BlockId block = pool.take();
  pool.release(block);
  pool.share(block);  // of a block that nobody holds
  EXPECT_THROW(pool.check_integrity(), Error);
}

}  // namespace
}  // namespace cohort::kv
