// Blocks of row caches: room when reserved, given back by window, by trims and when rows die.

#include "kv/row_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace cohort::kv {
namespace {

using kernels::cpu::kBlockTokens;
using kernels::cpu::KvGeometry;

constexpr KvGeometry kGeometry{.kv_heads = 2, .head_dim = 16, .bf16 = true};
const size_t kBlockBytes = kGeometry.block_bytes();

LayerSpec layer(int64_t window) {
  return {kGeometry, window};
}

/// Indices of the blocks below `end` that the layer holds.
std::set<int64_t> held(RowCache& row, size_t layer_index, int64_t end) {
  std::set<int64_t> found;
  std::byte* const* blocks = row.layer(layer_index).blocks();
  for (int64_t i = 0; i * kBlockTokens < end; ++i) {
    if (blocks[i] != nullptr) found.insert(i);
  }
  return found;
}

size_t used_blocks(const KvMemory& memory) {
  return memory.used_bytes() / kBlockBytes;
}

TEST(RowCache, ReservesWholeBlocksInEveryLayer) {
  KvMemory memory({layer(0), layer(0), layer(0)});
  EXPECT_EQ(memory.bytes_per_token(), 3 * kBlockBytes / kBlockTokens);
  RowCache row = memory.new_row();
  EXPECT_EQ(memory.used_bytes(), 0U);
  for (const auto& [tokens, blocks] : {std::pair{1, 1}, {64, 1}, {65, 2}, {640, 10}, {641, 11}}) {
    row.reserve(tokens);
    EXPECT_EQ(used_blocks(memory), 3U * static_cast<size_t>(blocks)) << tokens;
  }
  EXPECT_EQ(row.offset(), 0) << "to reserve commits nothing";
}

TEST(RowCache, ReservingAgainTakesNothingMore) {
  KvMemory memory({layer(0)});
  RowCache row = memory.new_row();
  row.reserve(100);
  std::byte* const first = row.layer(0).blocks()[0];
  row.reserve(100);  // a forward that is tried again
  row.reserve(10);
  EXPECT_EQ(used_blocks(memory), 2U);
  EXPECT_EQ(row.layer(0).blocks()[0], first);
}

TEST(RowCache, CommitGivesBackBlocksThatWereReservedInVain) {
  KvMemory memory({layer(0)});
  RowCache row = memory.new_row();
  row.reserve(1000);
  row.commit(70);
  EXPECT_EQ(row.offset(), 70);
  EXPECT_EQ(used_blocks(memory), 2U);
  row.reserve(500);
  row.commit(0);  // the forward failed
  EXPECT_EQ(used_blocks(memory), 2U);
}

TEST(RowCache, CommitKeepsWhatWasWritten) {
  KvMemory memory({layer(0)});
  RowCache row = memory.new_row();
  for (int64_t end = 64; end <= 640; end += 64) {
    row.reserve(64);
    std::byte* const block = row.layer(0).blocks()[row.offset() / kBlockTokens];
    std::memset(block, static_cast<int>(end / 64), kBlockBytes);
    row.commit(64);
  }
  for (int64_t i = 0; i < 10; ++i) {
    const std::byte* block = row.layer(0).blocks()[i];
    EXPECT_EQ(block[0], std::byte(i + 1));
    EXPECT_EQ(block[kBlockBytes - 1], std::byte(i + 1));
  }
}

TEST(RowCache, AWindowKeepsExactlyTheBlocksThatALaterQuerySees) {
  std::mt19937 random(3);
  for (int64_t window : {1, 2, 63, 64, 65, 100, 128, 512}) {
    KvMemory memory({layer(window), layer(0)});
    RowCache row = memory.new_row();
    while (row.offset() < 2000) {
      const auto tokens = static_cast<int64_t>(1 + random() % 200);
      row.reserve(tokens);
      const int64_t end = row.offset() + tokens;
      // Before the commit: everything that the queries at [offset, end) see, and their own room.
      std::set<int64_t> wanted;
      const int64_t oldest = std::max<int64_t>(0, row.offset() - window + 1);
      for (int64_t p = oldest / kBlockTokens; p * kBlockTokens < end; ++p) wanted.insert(p);
      ASSERT_EQ(held(row, 0, end), wanted) << "window " << window << " offset " << row.offset();
      row.commit(tokens);
      ASSERT_EQ(held(row, 1, end).size(), static_cast<size_t>((end + 63) / 64)) << "no window";
    }
    const auto in_window = static_cast<size_t>((window + 2 * kBlockTokens - 2) / kBlockTokens);
    const size_t without = static_cast<size_t>((row.offset() + 63) / 64);
    EXPECT_LE(used_blocks(memory), in_window + without) << "window " << window;
  }
}

TEST(RowCache, RowsThatDieGiveEverythingBack) {
  KvMemory memory({layer(0), layer(100), layer(512)});
  std::mt19937 random(4);
  size_t most_bytes = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<RowCache> rows;
    for (int i = 0; i < 8; ++i) rows.push_back(memory.new_row());
    for (int step = 0; step < 40; ++step) {
      RowCache& row = rows[random() % rows.size()];
      const auto tokens = static_cast<int64_t>(1 + random() % 100);
      row.reserve(tokens);
      if (random() % 5 != 0) row.commit(tokens);  // else the forward failed
    }
    std::vector<RowCache> moved;
    for (RowCache& row : rows) moved.push_back(std::move(row));
    rows.clear();  // moved-from rows own nothing
    EXPECT_GT(memory.used_bytes(), 0U);
    most_bytes = std::max(most_bytes, memory.used_bytes());
    moved.clear();
    ASSERT_EQ(memory.used_bytes(), 0U) << "round " << round;
  }
  EXPECT_GT(most_bytes, 0U);
}

TEST(RowCache, NoBlockBelongsToTwoRows) {
  KvMemory memory({layer(0), layer(64)});
  std::vector<RowCache> rows;
  for (int i = 0; i < 6; ++i) rows.push_back(memory.new_row());
  std::mt19937 random(5);
  for (int step = 0; step < 200; ++step) {
    RowCache& row = rows[random() % rows.size()];
    row.reserve(40);
    row.commit(40);
    std::set<const std::byte*> seen;
    size_t total = 0;
    for (RowCache& each : rows) {
      for (size_t l : {0, 1}) {
        for (int64_t i : held(each, l, each.offset())) {
          seen.insert(each.layer(l).blocks()[i]);
          ++total;
        }
      }
    }
    ASSERT_EQ(seen.size(), total);
    ASSERT_EQ(used_blocks(memory), total);
  }
}

TEST(KvMemory, LayersOfUnlikeGeometryHavePoolsOfTheirOwn) {
  const KvGeometry wide{.kv_heads = 4, .head_dim = 64, .bf16 = false};
  KvMemory memory({layer(0), {wide, 0}});
  {
    RowCache row = memory.new_row();
    row.reserve(1);
    EXPECT_EQ(memory.used_bytes(), kBlockBytes + wide.block_bytes());
    std::memset(row.layer(1).blocks()[0], 1, wide.block_bytes());
  }
  EXPECT_EQ(memory.used_bytes(), 0U);
}

}  // namespace
}  // namespace cohort::kv
