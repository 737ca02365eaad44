// The memory of rows: room when reserved, given back by windows, cuts and rows that end.

#include "kv/row_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "base/error.h"
#include "tests/kv/filled_caches.h"

namespace cohort::kv::test {
namespace {

using kernels::cpu::dense_kv;
using kernels::cpu::kBlockTokens;

const LayerPrecision kDense{dense_kv(true), dense_kv(true), 0};
const size_t kBlockBytes = LayerSpec{2, 16}.geometry(dense_kv(true)).block_bytes();

struct Model {
  explicit Model(const std::vector<int64_t>& windows, size_t most_bytes = SIZE_MAX)
      : memory(layers(windows), most_bytes), precision(windows.size(), kDense) {}
  static std::vector<AnyLayerSpec> layers(const std::vector<int64_t>& windows) {
    std::vector<AnyLayerSpec> specs;
    for (const int64_t window : windows) specs.emplace_back(LayerSpec{2, 16, window, 0});
    return specs;
  }
  RowCache row() { return memory.new_row(precision); }
  size_t used_blocks() const { return memory.pools().used_bytes() / kBlockBytes; }
  void check(const std::vector<RowCache>& rows) {
    BlockCensus census;
    for (const RowCache& each : rows) each.check_integrity(census);
    memory.pools().check_integrity(census);
  }

  KvMemory memory;
  RowPrecision precision;
};

/// Indices of the blocks that the layer holds, reserved ones too.
std::set<int64_t> held(RowCache& row, size_t layer) {
  std::set<int64_t> found;
  for (size_t i = 0; i < row.attention(layer).blocks(); ++i) {
    if (row.attention(layer).block(i) != nullptr) found.insert(static_cast<int64_t>(i));
  }
  return found;
}

TEST(RowCache, ReservesWholeBlocksInEveryLayer) {
  Model model({0, 0, 0});
  RowCache row = model.row();
  EXPECT_EQ(row.bytes_per_token(), 3 * kBlockBytes / kBlockTokens);
  EXPECT_EQ(model.used_blocks(), 0U);
  for (const auto& [tokens, blocks] : {std::pair{1, 1}, {64, 1}, {65, 2}, {640, 10}, {641, 11}}) {
    row.reserve(tokens);
    EXPECT_EQ(model.used_blocks(), 3U * static_cast<size_t>(blocks)) << tokens;
  }
  EXPECT_EQ(row.offset(), 0) << "to reserve commits nothing";
}

TEST(RowCache, AWindowKeepsExactlyTheBlocksThatALaterQuerySees) {
  std::mt19937 random(3);
  for (const int64_t window : {1, 2, 63, 64, 65, 100, 128, 512}) {
    Model model({window, 0});
    RowCache row = model.row();
    while (row.offset() < 2000) {
      const auto tokens = static_cast<int64_t>(1 + random() % 200);
      row.reserve(tokens);
      const int64_t end = row.offset() + tokens;
      // Before the commit: everything that the queries at [offset, end) see, and their own room.
      std::set<int64_t> wanted;
      const int64_t oldest = std::max<int64_t>(0, row.offset() - window + 1);
      for (int64_t p = oldest / kBlockTokens; p * kBlockTokens < end; ++p) wanted.insert(p);
      ASSERT_EQ(held(row, 0), wanted) << "window " << window << " offset " << row.offset();
      row.commit(tokens);
      ASSERT_EQ(held(row, 1).size(), static_cast<size_t>((end + 63) / 64)) << "no window";
    }
    const auto in_window = static_cast<size_t>((window + 2 * kBlockTokens - 2) / kBlockTokens);
    EXPECT_LE(held(row, 0).size(), in_window) << "window " << window;
  }
}

TEST(RowCache, RowsThatDieGiveEverythingBack) {
  Model model({0, 100, 512});
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    std::vector<RowCache> rows;
    for (int i = 0; i < 8; ++i) rows.push_back(model.row());
    for (int step = 0; step < 60; ++step) {
      RowCache& row = rows[random() % rows.size()];
      const auto tokens = static_cast<int64_t>(1 + random() % 100);
      row.reserve(tokens);
      row.commit(random() % 5 != 0 ? tokens : 0);  // else the forward failed
      if (random() % 6 == 0) row.trim(row.trim_floor());
      if (random() % 4 == 0) rows.push_back(row.clone());
    }
    model.check(rows);
    std::vector<RowCache> moved;
    for (RowCache& row : rows) moved.push_back(std::move(row));
    rows.clear();  // moved-from rows own nothing
    EXPECT_GT(model.used_blocks(), 0U);
    model.check(moved);
    moved.clear();
    ASSERT_EQ(model.used_blocks(), 0U) << "round " << round;
    // The pool keeps a few slabs of sixteen.
    EXPECT_LE(model.memory.pools().held_bytes(), 5 * 16 * kBlockBytes);
  }
}

TEST(RowCache, NoBlockBelongsToTwoRowsThatShareNothing) {
  Model model({0, 64});
  std::vector<RowCache> rows;
  for (int i = 0; i < 6; ++i) rows.push_back(model.row());
  std::mt19937 random(5);
  for (int step = 0; step < 200; ++step) {
    RowCache& row = rows[random() % rows.size()];
    row.reserve(40);
    row.commit(40);
    std::set<const std::byte*> seen;
    size_t total = 0;
    for (RowCache& each : rows) {
      for (const size_t layer : {0, 1}) {
        for (const int64_t i : held(each, layer)) {
          seen.insert(each.attention(layer).block(static_cast<size_t>(i)));
          ++total;
        }
      }
    }
    ASSERT_EQ(seen.size(), total);
    ASSERT_EQ(model.used_blocks(), total);
  }
  model.check(rows);
}

TEST(KvMemory, LayersOfUnlikeGeometryHavePoolsOfTheirOwn) {
  const LayerSpec wide{4, 64};
  KvMemory memory({LayerSpec{2, 16}, wide});
  {
    RowCache row = memory.new_row({kDense, {dense_kv(false), dense_kv(false), 0}});
    row.reserve(1);
    const size_t bytes = wide.geometry(dense_kv(false)).block_bytes();
    EXPECT_EQ(memory.pools().used_bytes(), kBlockBytes + bytes);
    std::memset(row.attention(1).restored_block(0), 1, bytes);
  }
  EXPECT_EQ(memory.pools().used_bytes(), 0U);
}

TEST(KvMemory, RowsStayUsableWhenThereIsNoMoreMemory) {
  for (const LayerCase& c : layer_cases()) {
    if (c.attention() == nullptr) continue;
    SCOPED_TRACE(describe(c));
    const auto bytes = [&](const kernels::cpu::KvEncoding& encoding) {
      return c.attention()->geometry(encoding).block_bytes();
    };
    // Room for sixteen blocks of each encoding.
    const size_t most = 16 * std::max(bytes(c.precision.first), bytes(c.precision.then)) +
                        (c.precision.changes() ? 16 * bytes(c.precision.then) : 0);
    OneLayer model(c, most), free(c);
    RowCache row = model.row(200), wanted = free.row(200);
    const auto before = image(row.layer(0));
    for (int i = 0; i < 2; ++i) {
      try {
        row.reserve(1 << 20);
        FAIL() << "a million tokens fit";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kOverloaded);
      }
      model.check({&row});
      EXPECT_EQ(image(row.layer(0)), before);
      row.commit(0);
      model.check({&row});
      EXPECT_EQ(state_bytes(row.layer(0)), model.used_bytes());
    }
    append(row, 50, model.cpu);
    append(wanted, 50, free.cpu);
    EXPECT_EQ(image(row.layer(0)), image(wanted.layer(0)));
  }
}

TEST(KvMemory, AConversionThatFindsNoMemoryCanBeTriedAgain) {
  const LayerPrecision precision{dense_kv(true), kernels::cpu::turbo_kv(8, 3), 100};
  const LayerCase c{LayerSpec{2, 64}, precision};
  const size_t dense = c.attention()->geometry(precision.first).block_bytes();
  const size_t turbo = c.attention()->geometry(precision.then).block_bytes();
  OneLayer model(c, 3 * dense + 16 * turbo);
  std::optional<RowCache> other = model.row();
  other->reserve(1);
  OneLayer turbo_only({LayerSpec{2, 64}, {precision.then, precision.then, 0}});
  RowCache row = model.row();
  row.reserve(100);
  write_tokens(row.layer(0), 100);
  row.commit(100);
  std::vector<BlockId> taken;  // all turbo blocks but one
  BlockPool& pool = model.memory.pools().of(turbo);
  for (int i = 0; i < 15; ++i) taken.push_back(pool.take());
  const auto before = image(row.layer(0));
  EXPECT_THROW(row.maintain(model.cpu), Error);
  EXPECT_EQ(image(row.layer(0)), before);
  EXPECT_EQ(pool.used_blocks(), 15U);
  EXPECT_EQ(row.max_append_tokens(), 0);
  for (const BlockId block : taken) pool.release(block);
  row.maintain(model.cpu);
  append(row, 50, model.cpu);
  OneLayer free(c);
  EXPECT_EQ(image(row.layer(0)), image(free.row(150).layer(0)));
  model.check({&row, &*other});
}

}  // namespace
}  // namespace cohort::kv::test
