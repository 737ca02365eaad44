// The SSD tier of the prefix cache: rows outlive the server, and what is found is what was kept.

#include "store/ssd/ssd_store.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include "base/error.h"
#include "tests/store/ssd_scene.h"

namespace cohort::store::test {
namespace {

TEST(SsdStore, EveryKindOfCacheComesBackBitForBitAndGoesOn) {
  std::vector<kv::test::LayerCase> cases = kv::test::layer_cases();
  cases.push_back(kv::test::windowed_turbo());
  for (const kv::test::LayerCase& each : cases) {
    SCOPED_TRACE(kv::test::describe(each));
    const TempFolder folder;
    PrefixModel model({each}), other({each});
    const auto ids_of = [](uint32_t tokens) { return some_ids(tokens, tokens); };
    {
      SsdStore store(options(folder.path));
      for (const uint32_t tokens : {1, 64, 100, 150}) keep(store, model, ids_of(tokens));
    }
    SsdStore store(options(folder.path));
    EXPECT_TRUE(store.flush(20s));
    for (const uint32_t tokens : {1, 64, 100, 150}) {
      kv::RowCache row = model.row_of(ids_of(tokens));
      auto copy = restored(store, other, ids_of(tokens));
      ASSERT_TRUE(copy) << tokens;
      EXPECT_EQ(image(*copy), image(row));
      EXPECT_EQ(copy->trim_floor(), row.trim_floor());
      EXPECT_EQ(copy->minimum_reusable_offset(), row.minimum_reusable_offset());
      const Ids longer = ids_of(tokens) + some_ids(80, 4);
      model.feed(row, longer);
      other.feed(*copy, longer);
      EXPECT_EQ(image(*copy), image(row));
      other.check(PrefixCache(0), {&*copy});
    }
    EXPECT_EQ(store.stats().hits, 4U);
  }
}

TEST(SsdStore, RowsOfManyLayersServeEveryPrefixThatTheyCanBeCutTo) {
  for (const auto& [name, layers] : models()) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    PrefixModel model(layers);
    SsdStore store(options(folder.path));
    const Ids ids = some_ids(200, 5);
    const kv::RowCache row = model.row_of(ids);
    ASSERT_TRUE(keep(store, model, ids));
    for (const int64_t tokens : {1, 64, 89, 90, 130, 131, 150, 199, 200}) {
      auto found = restored(store, model, first(ids, tokens));
      ASSERT_EQ(found.has_value(), tokens >= floor_of(row)) << tokens;
      if (!found) continue;
      EXPECT_EQ(found->offset(), tokens);
      kv::RowCache cut = row.clone();
      cut.trim(tokens);
      EXPECT_EQ(image(*found), image(cut));
    }
  }
}

TEST(SsdStore, TheLastTokenOfAPromptIsLeftToCompute) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdStore store(options(folder.path));
  const Ids ids = some_ids(100, 1);
  keep(store, model, ids);
  EXPECT_EQ(store.longest("n", ids)->tokens, 99);
  EXPECT_EQ(store.longest("n", ids + Ids{1})->tokens, 100);
  EXPECT_FALSE(store.longest("n", first(ids, 1)));
  EXPECT_FALSE(store.longest("n", {}));
  EXPECT_FALSE(store.longest("other", ids));
  EXPECT_EQ(store.stats().misses, 3U);
}

TEST(SsdStore, ALongerRowReplacesThoseThatItCanBeCutBackTo) {
  for (const bool recurrent : {false, true}) {
    const TempFolder folder;
    PrefixModel model({recurrent ? recurrent_layer() : plain_layer()});
    SsdStore store(options(folder.path));
    const Ids ids = some_ids(150, 1);
    keep(store, model, first(ids, 50));
    keep(store, model, ids);
    keep(store, model, ids);  // is there
    keep(store, model, first(ids, 50));
    EXPECT_EQ(store.stats().files, recurrent ? 2U : 1U);
    EXPECT_EQ(store.stats().written, 2U);
    EXPECT_EQ(files_in(folder.path).size(), recurrent ? 2U : 1U);
    EXPECT_EQ(restored(store, model, first(ids, 50))->offset(), 50);
  }
}

TEST(SsdStore, SnapshotsAreWrittenWhileTheirRowGoesOn) {
  const TempFolder folder;
  PrefixModel model({plain_layer(), recurrent_layer()});
  SsdStore store(options(folder.path));
  const Ids ids = some_ids(400, 2);
  kv::RowCache row = model.row();
  std::map<size_t, std::vector<std::vector<std::byte>>> images;
  for (size_t tokens = 10; tokens <= ids.size(); tokens += 13) {
    model.feed(row, first(ids, static_cast<int64_t>(tokens)));
    images[tokens] = image(row);
    store.offer("n", ids, row.clone());
    EXPECT_TRUE(store.collect().empty());
    kv::BlockCensus census;
    row.check_integrity(census);
    store.check_integrity(census);
    model.memory.pools().check_integrity(census);
  }
  ASSERT_TRUE(store.flush(20s));
  store.collect();
  EXPECT_EQ(store.stats().pending_bytes, 0U);
  model.check(PrefixCache(0), {&row});
  for (const auto& [tokens, wanted] : images) {
    const auto copy = restored(store, model, first(ids, static_cast<int64_t>(tokens)));
    ASSERT_TRUE(copy);
    EXPECT_EQ(image(*copy), wanted);
  }
}

TEST(SsdStore, WhatIsTooMuchIsDroppedAndCounted) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdOptions tight = options(folder.path, 100'000);
  tight.most_pending_bytes = 150'000;
  SsdStore store(tight);
  store.offer("n", some_ids(2000, 1), model.row_of(some_ids(2000, 1)));  // more than the cache
  EXPECT_EQ(store.stats().dropped, 1U);
  for (uint32_t seed = 2; seed < 6; ++seed) {  // 64 KB each, and nothing is collected
    store.offer("n", some_ids(1000, seed), model.row_of(some_ids(1000, seed)));
  }
  EXPECT_EQ(store.stats().dropped, 3U);
  EXPECT_FALSE(store.flush(20s)) << "not all that was offered is durable";
  store.collect();
  EXPECT_EQ(model.used_bytes(), 0U);
}

TEST(SsdStore, ARestoreWithoutMemoryIsTheCallersErrorAndLeavesNothing) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdStore store(options(folder.path));
  const Ids ids = some_ids(1000, 1);
  keep(store, model, ids);
  kv::KvMemory small(model.memory.layers(), 16 << 10);
  EXPECT_THROW(store.restore(*store.longest("n", ids), small.new_row(model.precision)), Error);
  EXPECT_EQ(small.pools().used_bytes(), 0U);
  EXPECT_TRUE(restored(store, model, ids));
}

TEST(SsdStore, FilesOfSomethingElseAreNoHits) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdStore store(options(folder.path));
  const Ids ids = some_ids(100, 1);
  keep(store, model, ids);
  SsdOptions foreign = options(folder.path);
  foreign.identity = "another model";
  const auto its_folder = folder.path / group_of(foreign.identity);
  std::filesystem::create_directory(its_folder);
  const auto copy = its_folder / files_in(folder.path).front().filename();
  std::filesystem::copy_file(files_in(folder.path).front(), copy);
  SsdStore other(foreign);
  other.flush(20s);
  EXPECT_FALSE(other.longest("n", ids));
  EXPECT_EQ(other.stats().foreign, 1U);
  EXPECT_TRUE(std::filesystem::exists(copy));
  other.flush(20s);
  EXPECT_EQ(other.stats().foreign, 1U);  // it is not looked into again
  EXPECT_TRUE(restored(store, model, ids));
}

TEST(SsdStore, ARowOfAnotherSignatureIsAMiss) {
  const TempFolder folder;
  PrefixModel model({plain_layer()}), other({window_layer()});
  SsdStore store(options(folder.path));
  keep(store, model, some_ids(100, 1));
  EXPECT_FALSE(restored(store, other, some_ids(100, 1)));
  EXPECT_EQ(other.used_bytes(), 0U);
  EXPECT_EQ(store.stats().misses, 1U);
}

TEST(SsdStore, AnIndexThatIsGoneOrDamagedIsMadeAnew) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  const Ids ids = some_ids(100, 1);
  const auto index = folder.path / "index.sqlite";
  {
    SsdStore store(options(folder.path));
    keep(store, model, ids);
    keep(store, model, some_ids(90, 2));
  }
  const auto harms = {
      +[](const std::filesystem::path& file) { std::filesystem::remove(file); },
      +[](const std::filesystem::path& file) { write_file(file, Record(5000, std::byte{7})); },
      +[](const std::filesystem::path& file) { std::filesystem::resize_file(file, 4096 + 100); },
      +[](const std::filesystem::path& file) {
        std::filesystem::remove(file);
        std::filesystem::create_symlink("/dev/null", file);
      },
      +[](const std::filesystem::path& file) {
        std::filesystem::remove(file);
        std::filesystem::create_directory(file);
      },
      +[](const std::filesystem::path&) {},
  };
  for (const auto& harm : harms) {
    harm(index);
    SsdStore store(options(folder.path));
    EXPECT_TRUE(store.flush(20s));
    EXPECT_EQ(store.stats().files, 2U);
    const auto copy = restored(store, model, ids);
    ASSERT_TRUE(copy);
    EXPECT_EQ(image(*copy), image(model.row_of(ids)));
  }
}

TEST(SsdStore, AnIndexThatLiesCostsAMissAndNoFile) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  const Ids ids = some_ids(100, 1), lie = some_ids(100, 2), shorter = some_ids(90, 1);
  for (const Ids* told : {&lie, &shorter}) {
    {
      SsdStore(options(folder.path)).flush(20s);
    }
    {
      SsdStore store(options(folder.path));
      keep(store, model, ids);
    }
    sqlite3* db = nullptr;
    sqlite3_open((folder.path / "index.sqlite").c_str(), &db);
    sqlite3_stmt* change = nullptr;
    sqlite3_prepare_v2(db, "UPDATE files_2 SET ids = ?", -1, &change, nullptr);
    sqlite3_bind_blob(change, 1, told->data(), static_cast<int>(told->size() * 4), SQLITE_STATIC);
    EXPECT_EQ(sqlite3_step(change), SQLITE_DONE);
    EXPECT_EQ(sqlite3_changes(db), 1);
    sqlite3_finalize(change);
    sqlite3_close(db);
    SsdStore store(options(folder.path));
    store.flush(20s);
    EXPECT_TRUE(store.longest("n", *told));
    EXPECT_FALSE(restored(store, model, *told));
    store.flush(20s);
    EXPECT_TRUE(restored(store, model, ids));
    EXPECT_EQ(useless(store.stats()), 0U);
  }
}

TEST(SsdStore, AnIndexWithoutAnEndIsMadeAnew) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  const Ids ids = some_ids(100, 1);
  {
    SsdStore store(options(folder.path));
    keep(store, model, ids);
  }
  sqlite3* db = nullptr;
  sqlite3_open((folder.path / "index.sqlite").c_str(), &db);
  const char* endless =
      "DROP TABLE files_2; CREATE VIEW files_2 AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
      "SELECT "
      "i + 1 FROM n) SELECT 'f' || i AS file, 1 AS bytes, 'n' AS space, 0 AS floor, 0 AS reusable, "
      "'' AS ids, '' AS generation FROM n";
  EXPECT_EQ(sqlite3_exec(db, endless, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  SsdStore store(options(folder.path));
  EXPECT_TRUE(store.flush(20s));
  EXPECT_TRUE(restored(store, model, ids));
}

TEST(SsdStore, TheBytesStayBelowTheLimitAndTheLeastRecentlyUsedGoes) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  uint64_t one = 0;
  {
    SsdStore store(options(folder.path));
    keep(store, model, some_ids(500, 1));
    one = store.stats().bytes;
    keep(store, model, some_ids(500, 2));
    keep(store, model, some_ids(500, 3));
  }
  SsdStore store(options(folder.path, 3 * one + one / 2));
  store.flush(20s);
  EXPECT_TRUE(restored(store, model, some_ids(500, 1)));  // now the latest
  keep(store, model, some_ids(500, 4));
  EXPECT_EQ(store.stats().removed, 1U);
  EXPECT_EQ(store.stats().files, 3U);
  EXPECT_FALSE(restored(store, model, some_ids(500, 2)));
  for (const uint32_t seed : {1U, 3U, 4U}) {
    EXPECT_TRUE(restored(store, model, some_ids(500, seed))) << seed;
  }
  uint64_t bytes = 0;
  for (const auto& file : files_in(folder.path)) bytes += std::filesystem::file_size(file);
  EXPECT_EQ(bytes, store.stats().bytes);
}

TEST(SsdStore, FilesOfOtherModelsMakeRoomToo) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdOptions old = options(folder.path);
  old.identity = "last year's model";
  {
    SsdStore store(old);
    keep(store, model, some_ids(500, 1));
  }
  SsdStore store(options(folder.path, 40'000));
  keep(store, model, some_ids(500, 2));
  EXPECT_EQ(files_in(folder.path).size(), 1U);
  EXPECT_TRUE(restored(store, model, some_ids(500, 2)));
}

TEST(SsdStore, AFileThatIsReadIsNotRemoved) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdStore store(options(folder.path));
  keep(store, model, some_ids(500, 1));
  const CacheFolder cache(folder.path);
  const std::string name = cache.list().front().name;
  {
    const FileLease lease = cache.lease(name);
    EXPECT_FALSE(cache.remove(name));
    EXPECT_TRUE(cache.make_room(0).first.empty());
    keep(store, model, some_ids(500, 1) + some_ids(10, 2));  // would replace it
    EXPECT_EQ(store.stats().files, 2U);
    std::vector<std::byte> bytes(lease.bytes());
    lease.read(bytes);
    EXPECT_TRUE(bytes == read_file(folder.path / name));
    EXPECT_THROW(lease.read(std::span(bytes).first(1)), Error);
  }
  EXPECT_EQ(cache.make_room(0).first.size(), 2U);
  EXPECT_THROW(cache.lease(name), Error);
}

TEST(SsdStore, FilesArePrivateAlignedAndNameNoText) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdStore store(options(folder.path / "deep" / "cache"));
  keep(store, model, some_ids(70, 1));
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder.path / "deep/cache")) {
    struct stat status {};
    ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 077, 0U) << entry.path();
  }
  EXPECT_EQ(read_file(files_in(folder.path).front()).size() % 64, 0U);
}

TEST(SsdStore, ClosingWritesWhatIsPendingWithinItsLimit) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  {
    SsdStore store(options(folder.path));
    for (uint32_t seed = 0; seed < 20; ++seed) {
      store.offer("n", some_ids(300, seed), model.row_of(some_ids(300, seed)));
    }
    EXPECT_TRUE(store.close(20s));
    EXPECT_EQ(store.stats().written, 20U);
    store.offer("n", some_ids(300, 99), model.row_of(some_ids(300, 99)));
    EXPECT_EQ(store.stats().dropped, 1U);
    // A restore that comes late is a miss.
    EXPECT_FALSE(restored(store, model, some_ids(300, 0)));
  }
  EXPECT_EQ(model.used_bytes(), 0U);
  {
    SsdStore store(options(folder.path));
    store.flush(20s);
    EXPECT_EQ(store.stats().files, 20U);
    for (uint32_t seed = 100; seed < 150; ++seed) {
      store.offer("n", some_ids(300, seed), model.row_of(some_ids(300, seed)));
    }
    const auto begin = SsdStore::Clock::now();
    store.close(0s);
    EXPECT_LT(SsdStore::Clock::now() - begin, 10s);
    const SsdStats stats = store.stats();
    EXPECT_EQ(stats.written + stats.dropped, 50U);
  }
  EXPECT_EQ(model.used_bytes(), 0U);
}

TEST(SsdStore, TheEngineIsWokenWhenARowIsThere) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  std::atomic<int> calls = 0;
  SsdOptions waking = options(folder.path);
  waking.on_done = [&] { ++calls; };
  SsdStore store(waking);
  keep(store, model, some_ids(100, 1));
  while (calls == 0) std::this_thread::sleep_for(1ms);  // written
  calls = 0;
  const uint64_t ticket = store.restore(*store.longest("n", some_ids(100, 1)), model.row());
  while (calls == 0) std::this_thread::sleep_for(1ms);
  const auto found = store.collect();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].ticket, ticket);
  EXPECT_TRUE(found[0].row);
  EXPECT_EQ(store.stats().hits, 1U);
  EXPECT_EQ(store.stats().hit_tokens, 99U);
}

}  // namespace
}  // namespace cohort::store::test
