// Unfinished answers on SSD: what a retry goes on with, and who may not.

#include <gtest/gtest.h>

#include "tests/store/ssd_scene.h"

namespace cohort::store::test {
namespace {

const std::string kKey(64, 'a'), kPrint(64, 'b');

/// An answer of so many tokens to a prompt of 90: `ids` are the prompt and all of the answer.
Generation answer_of(const Ids& ids, int64_t tokens, const std::string& key = kKey) {
  return {key, kPrint, ~uint64_t{0}, Ids(ids.begin() + 90, ids.begin() + 90 + tokens)};
}

/// Offers the checkpoint that the engine would: the last token is not in the row yet.
void offer(SsdStore& store, PrefixModel& model, const Ids& ids, const Generation& generation) {
  const auto tokens = static_cast<int64_t>(90 + generation.answer.size()) - 1;
  store.offer("n", ids, model.row_of(first(ids, tokens)), generation);
}

void settle(SsdStore& store) {
  EXPECT_TRUE(store.flush(20s));
  EXPECT_TRUE(store.collect().empty());
}

TEST(Generation, IsKnownAfterARestartByKeyAndFingerprintOnly) {
  const Ids ids = some_ids(150, 1);
  const TempFolder folder;
  PrefixModel model({plain_layer(), window_layer(), recurrent_layer()});
  for (const int64_t tokens : {1, 10, 60}) {
    {
      SsdStore store(options(folder.path));
      offer(store, model, ids, answer_of(ids, tokens));
      settle(store);
    }
    for (const bool index : {true, false}) {
      if (!index) std::filesystem::remove(folder.path / "index.sqlite");
      SsdStore store(options(folder.path));
      EXPECT_EQ(store.generation(kKey, kPrint), answer_of(ids, tokens)) << index;
      EXPECT_FALSE(store.generation(kKey, kKey));
      EXPECT_FALSE(store.generation(kPrint, kPrint));
      EXPECT_EQ(store.stats().files, 1U) << "the former checkpoint is gone";
      const auto row = restored(store, model, first(ids, 90 + tokens - 1));
      ASSERT_TRUE(row);
      EXPECT_EQ(image(*row), image(model.row_of(first(ids, 90 + tokens - 1))));
      SsdOptions other = options(folder.path);
      other.identity = "another model";
      EXPECT_FALSE(SsdStore(other).generation(kKey, kPrint));
    }
  }
}

TEST(Generation, ThatHasEndedLeavesNoCheckpoint) {
  const Ids ids = some_ids(150, 1);
  for (const auto& [name, layers] : models()) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    PrefixModel model(layers);
    SsdStore store(options(folder.path));
    for (const int64_t tokens : {10, 20, 30}) {
      offer(store, model, ids, answer_of(ids, tokens));
      settle(store);
      EXPECT_EQ(store.generation(kKey, kPrint), answer_of(ids, tokens));
    }
    store.offer("n", ids, model.row_of(ids), Generation{kKey, kPrint});
    settle(store);
    EXPECT_FALSE(store.generation(kKey, kPrint));
    EXPECT_EQ(files_in(folder.path).size(), 1U);
    EXPECT_EQ(restored(store, model, ids)->offset(), 150);
    // Once more, when all of it is there.
    offer(store, model, ids, answer_of(ids, 10));
    settle(store);
    EXPECT_EQ(store.generation(kKey, kPrint), answer_of(ids, 10));
    store.offer("n", ids, model.row_of(ids), Generation{kKey, kPrint});
    settle(store);
    EXPECT_FALSE(store.generation(kKey, kPrint));
    EXPECT_EQ(files_in(folder.path).size(), 1U);
    EXPECT_EQ(model.used_bytes(), 0U);
  }
}

TEST(Generation, OfTheSameTokensAsOthersIsKnownBesideThem) {
  const Ids ids = some_ids(150, 1);
  const std::string twin(64, 'c');
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  {
    SsdStore store(options(folder.path));
    keep(store, model, first(ids, 99));  // what the first checkpoint has
    offer(store, model, ids, answer_of(ids, 10));
    offer(store, model, ids, answer_of(ids, 10, twin));
    settle(store);
    EXPECT_EQ(files_in(folder.path).size(), 3U);
  }
  SsdStore store(options(folder.path));
  EXPECT_EQ(store.generation(kKey, kPrint), answer_of(ids, 10));
  EXPECT_EQ(store.generation(twin, kPrint), answer_of(ids, 10, twin));
  offer(store, model, ids, answer_of(ids, 60));
  settle(store);
  EXPECT_EQ(store.generation(twin, kPrint), answer_of(ids, 10, twin));
  store.offer("n", ids, model.row_of(ids), Generation{kKey, kPrint});
  settle(store);
  EXPECT_FALSE(store.generation(kKey, kPrint));
  EXPECT_EQ(store.generation(twin, kPrint), answer_of(ids, 10, twin));
  EXPECT_EQ(restored(store, model, first(ids, 99))->offset(), 99);
}

TEST(Generation, WaitsAsItsLatestCheckpointOnly) {
  const Ids ids = some_ids(150, 1);
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdOptions narrow = options(folder.path);
  narrow.most_pending_bytes = 4 * 64 * 1024;
  SsdStore store(narrow);
  for (int round = 0; round < 20; ++round) {
    for (int64_t tokens = 1; tokens <= 60; ++tokens) {
      offer(store, model, ids, answer_of(ids, tokens));
      EXPECT_LE(store.stats().pending_writes, 2U) << "one is written, one waits";
      store.collect();
    }
  }
  settle(store);
  EXPECT_EQ(store.generation(kKey, kPrint), answer_of(ids, 60));
  EXPECT_EQ(store.stats().pending_bytes, 0U);
  EXPECT_EQ(store.stats().dropped, 0U);
  EXPECT_EQ(files_in(folder.path).size(), 1U);
  model.check(PrefixCache(0));
  EXPECT_EQ(model.used_bytes(), 0U);
}

TEST(Generation, IsNeverGivenOutDamaged) {
  const Ids ids = some_ids(150, 1);
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  {
    SsdStore store(options(folder.path));
    offer(store, model, ids, answer_of(ids, 60));
    settle(store);
  }
  const auto path = files_in(folder.path).front();
  const Record whole = read_file(path);
  std::filesystem::remove(path);
  const std::string head(reinterpret_cast<const char*>(whole.data()), 4096);
  const size_t about = head.find("\"generation\""), ids_at = head.find("\"ids\"");
  ASSERT_LT(std::max(about, ids_at), head.size());
  std::mt19937 random(3);
  SsdStore store(options(folder.path));
  int known = 0;
  for (int i = 0; i < 300; ++i) {
    Record record = whole;
    const size_t at = i % 3 == 0 ? ids_at + random() % 1200 : about + random() % 300;
    record[at] ^= std::byte(1u << random() % 8);
    kv::test::repair(record);
    const auto file = new_file(folder.path);
    write_file(file, record);
    store.flush(20s);
    const auto found = store.generation(kKey, kPrint);
    known += found.has_value();
    EXPECT_EQ(found.value_or(answer_of(ids, 60)), answer_of(ids, 60)) << at;
    std::filesystem::remove(file);
    store.flush(20s);
    EXPECT_FALSE(store.generation(kKey, kPrint));
  }
  EXPECT_GT(known, 0) << "ids of the prompt are the fingerprint's";
  EXPECT_LT(known, 250);
}

}  // namespace
}  // namespace cohort::store::test
