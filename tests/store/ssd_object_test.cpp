// Objects on SSD: they outlive the server, share folder and budget with rows, and no harm makes one
// of them another.

#include <sqlite3.h>

#include <functional>
#include <map>

#include "base/error.h"
#include "store/ssd/file_report.h"
#include "store/ssd/saved_object.h"
#include "tests/store/objects.h"
#include "tests/store/ssd_scene.h"
#include "tests/support/rounds.h"

namespace cohort::store::test {
namespace {

using cohort::test::rounds;

bool keep_object(SsdStore& store, const std::string& key, const ObjectLease& object) {
  store.offer_object(key, object);
  const bool durable = store.flush(20s);
  EXPECT_TRUE(store.collect().empty());
  return durable;
}

/// What the store has under a key; null = nothing.
ObjectLease restored_object(SsdStore& store, const std::string& key) {
  const std::optional<uint64_t> ticket = store.restore_object(key);
  for (int i = 0; ticket && i < 20000; ++i) {
    for (SsdStore::Restored& each : store.collect()) {
      EXPECT_EQ(each.ticket, *ticket);
      EXPECT_FALSE(each.row);
      return each.object;
    }
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_FALSE(ticket) << "a restored object does not come";
  return nullptr;
}

Record record_of(const std::string& key, const Object& object) {
  Record record;
  ObjectWriter(kIdentity, key, object).write([&](kv::Bytes piece) {
    record.insert(record.end(), piece.begin(), piece.end());
  });
  return record;
}

/// What a store makes of a file of these bytes.
ObjectLease object_from(SsdStore& store, const std::filesystem::path& folder, const Record& record,
                        const std::string& key = "key") {
  const auto path = new_file(folder);
  write_file(path, record);
  store.flush(20s);
  ObjectLease object = restored_object(store, key);
  std::filesystem::remove(path);
  store.flush(20s);
  return object;
}

/// A store with the folder of its group.
struct Scene {
  Scene() {
    std::filesystem::create_directory(folder.path / group_of(kIdentity));
    store.emplace(options(folder.path));
  }
  TempFolder folder;
  std::optional<SsdStore> store;
};

TEST(SsdObjects, SurviveARestartBitForBit) {
  const TempFolder folder;
  Object object = *some_object(1);
  for (const kv::SavedTypeInfo& each : kv::kSavedTypes) {
    object.tensors.push_back(some_tensor(std::string(each.name), each.type, {3, 5, 7}, 9));
  }
  object.tensors.push_back(some_tensor("empty", kv::SavedType::kF32, {0, 4}, 1));
  object.tensors.push_back(some_tensor("number", kv::SavedType::kF32, {}, 1));
  const auto all = std::make_shared<const Object>(object);
  const auto bare = std::make_shared<const Object>();
  {
    SsdStore store(options(folder.path));
    EXPECT_FALSE(restored_object(store, "all"));
    EXPECT_TRUE(keep_object(store, "all", all));
    EXPECT_TRUE(keep_object(store, "", bare));
    EXPECT_TRUE(keep_object(store, "all", some_object(2))) << "there is one already";
    EXPECT_EQ(store.stats().written, 2U);
    EXPECT_EQ(store.stats().pending_bytes, 0U);
  }
  for (const bool with_index : {true, false}) {
    if (!with_index) std::filesystem::remove(folder.path / "index.sqlite");
    SsdStore store(options(folder.path));
    store.flush(20s);
    EXPECT_EQ(store.stats().files, 2U);
    const ObjectLease found = restored_object(store, "all");
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, *all);
    ASSERT_TRUE(restored_object(store, ""));
    EXPECT_EQ(*restored_object(store, ""), *bare);
    for (const char* key : {"al", "all ", "All"}) EXPECT_FALSE(restored_object(store, key)) << key;
    EXPECT_EQ(store.stats().hits, 3U);
    EXPECT_EQ(store.stats().misses, 3U);
    EXPECT_EQ(useless(store.stats()), 0U);
  }
}

TEST(SsdObjects, AFlippedByteOrACutAnywhereIsAMiss) {
  Scene scene;
  const Record whole = record_of("key", *some_object(1));
  ASSERT_EQ(*object_from(*scene.store, scene.folder.path, whole), *some_object(1));
  std::mt19937 random(3);
  for (size_t i = 0; i < 300 * rounds(); ++i) {
    Record record = whole;
    const size_t at = i % 2 == 0 ? random() % 1024 % record.size() : random() % record.size();
    record[at] ^= std::byte(1u << random() % 8);
    ASSERT_FALSE(object_from(*scene.store, scene.folder.path, record)) << at;
  }
  for (size_t size = 0; size < whole.size(); size += 1 + random() % (whole.size() / 50)) {
    const Record cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(object_from(*scene.store, scene.folder.path, cut)) << size;
  }
  Record longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(object_from(*scene.store, scene.folder.path, longer));
  EXPECT_EQ(scene.store->stats().hits, 1U);
  EXPECT_EQ(scene.store->stats().read_errors, 0U);
}

TEST(SsdObjects, AChangedFileWithARightChecksumIsWhatItSaysOrAMiss) {
  Scene scene;
  const Record whole = record_of("key", *some_object(1));
  std::mt19937 random(5);
  for (size_t i = 0; i < 200 * rounds(); ++i) {
    Record record = whole;
    record[random() % 1024 % record.size()] ^= std::byte(1u << random() % 8);
    kv::test::repair(record);
    const ObjectLease object = object_from(*scene.store, scene.folder.path, record);
    if (!object) continue;
    for (const ObjectTensor& tensor : object->tensors) {
      ASSERT_EQ(tensor.bytes.size(), tensor.spec.bytes());
    }
  }
}

TEST(SsdObjects, HeadersThatLieAreRefused) {
  Scene scene;
  const Record whole = record_of("key", *some_object(1));
  const auto with = [&](const std::function<void(boost::json::object&)>& change) {
    boost::json::object header = kv::test::header_of(whole);
    change(header);
    return object_from(*scene.store, scene.folder.path, kv::test::with_header(whole, header));
  };
  ASSERT_TRUE(with([](auto&) {}));
  using Lie = std::pair<const char*, boost::json::value>;
  for (const auto& [key, value] :
       {Lie("identity", "another"), Lie("identity", nullptr), Lie("object", "another"),
        Lie("object", 7), Lie("schema", nullptr), Lie("metadata", "none")}) {
    EXPECT_FALSE(with([&, k = key, &v = value](auto& h) { h["about"].as_object()[k] = v; })) << key;
  }
  for (const char* key : {"identity", "object", "schema", "metadata"}) {
    EXPECT_FALSE(with([&](auto& h) { h["about"].as_object().erase(key); })) << key;
  }
  const auto tensor = [](auto& header) -> boost::json::object& {
    return header["tensors"].at(0).as_object();
  };
  EXPECT_FALSE(with([&](auto& h) { tensor(h)["shape"] = {4, 257}; }));
  EXPECT_FALSE(with([&](auto& h) { tensor(h)["bytes"] = INT64_MAX; }));
  EXPECT_FALSE(with([&](auto& h) { tensor(h)["dtype"] = "F64"; }));
  EXPECT_FALSE(with([&](auto& h) { h["tensors"].as_array().pop_back(); }));
}

TEST(SsdObjects, AGiantIsNotReadIntoMemory) {
  const TempFolder folder;
  SsdOptions tight = options(folder.path);
  tight.most_pending_bytes = 1 << 20;
  std::filesystem::create_directory(folder.path / group_of(kIdentity));
  constexpr int64_t kBytes = 64 << 20;  // of holes, with a head that says so
  Record record = record_of("key", {"s", {}, {some_tensor("t", kv::SavedType::kU8, {64}, 1)}});
  boost::json::object header = kv::test::header_of(record);
  header["tensors"].at(0).as_object()["shape"] = {kBytes};
  header["tensors"].at(0).as_object()["bytes"] = kBytes;
  record = kv::test::with_header(record, header);
  record.resize(record.size() - 128);
  const auto path = new_file(folder.path);
  write_file(path, record);
  std::filesystem::resize_file(path, record.size() + kBytes + 64);
  SsdStore store(tight);
  store.flush(20s);
  EXPECT_EQ(store.stats().files, 1U) << "its head is sound";
  EXPECT_FALSE(restored_object(store, "key"));
  EXPECT_EQ(store.stats().foreign, 1U);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(SsdObjects, AnIndexThatLiesCostsAMissAndNoFile) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  const Ids ids = some_ids(100, 1);
  // Another key; a row's file as an object's; an object's file as a row's.
  for (const char* lie :
       {"UPDATE objects_1 SET key = CAST('lie' AS BLOB)",
        "INSERT INTO objects_1 SELECT file, bytes, CAST('lie' AS BLOB) FROM files_2;"
        "DELETE FROM files_2",
        "INSERT INTO files_2 SELECT file, bytes, CAST('n' AS BLOB), 0, 0, zeroblob(40), x'' "
        "FROM objects_1; DELETE FROM objects_1"}) {
    SCOPED_TRACE(lie);
    {
      SsdStore store(options(folder.path));
      store.flush(20s);
      keep_object(store, "key", some_object(1));
      keep(store, model, ids);
    }
    sqlite3* db = nullptr;
    sqlite3_open((folder.path / "index.sqlite").c_str(), &db);
    EXPECT_EQ(sqlite3_exec(db, lie, nullptr, nullptr, nullptr), SQLITE_OK);
    EXPECT_GT(sqlite3_total_changes(db), 0);
    sqlite3_close(db);
    SsdStore store(options(folder.path));
    store.flush(20s);
    EXPECT_EQ(store.stats().files, 2U);
    EXPECT_FALSE(restored_object(store, "lie"));
    EXPECT_FALSE(restored(store, model, Ids(10, 0)));
    store.flush(20s);
    EXPECT_TRUE(restored_object(store, "key"));
    EXPECT_TRUE(restored(store, model, ids));
    EXPECT_EQ(useless(store.stats()), 0U);
  }
}

TEST(SsdObjects, ShareTheLimitOfTheFolderWithRowsByTheirLatestUse) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  {
    SsdStore store(options(folder.path));
    keep(store, model, some_ids(500, 1));
    keep_object(store, "old", some_object(1, 30));
    keep_object(store, "used", some_object(2, 30));
    keep(store, model, some_ids(500, 2));
  }
  uint64_t bytes = 0;
  for (const auto& file : files_in(folder.path)) bytes += std::filesystem::file_size(file);
  SsdStore store(options(folder.path, bytes));
  store.flush(20s);
  EXPECT_EQ(store.stats().bytes, bytes);
  EXPECT_TRUE(restored(store, model, some_ids(500, 1)));
  EXPECT_TRUE(restored_object(store, "used"));
  EXPECT_TRUE(keep_object(store, "new", some_object(3, 30)));
  EXPECT_FALSE(restored_object(store, "old")) << "the least recently used";
  EXPECT_TRUE(restored_object(store, "new"));
  EXPECT_TRUE(restored(store, model, some_ids(500, 2)));
  EXPECT_TRUE(keep(store, model, some_ids(500, 3)));
  EXPECT_TRUE(restored(store, model, some_ids(500, 3)));
  EXPECT_FALSE(restored(store, model, some_ids(500, 1)));
  EXPECT_LE(store.stats().bytes, bytes);
  EXPECT_EQ(useless(store.stats()), 0U);
}

TEST(SsdObjects, WhatIsTooMuchIsDroppedAndCounted) {
  const TempFolder folder;
  SsdOptions tight = options(folder.path, 60'000);
  tight.most_pending_bytes = 50'000;
  SsdStore store(tight);
  store.offer_object("large", some_object(1, 100));
  for (uint32_t seed = 2; seed < 6; ++seed) {  // 20 KB each, and nothing is collected
    store.offer_object(std::to_string(seed), some_object(seed, 20));
  }
  EXPECT_EQ(store.stats().dropped, 3U);
  EXPECT_FALSE(store.flush(20s)) << "not all that was offered is durable";
  store.collect();
  EXPECT_EQ(store.stats().pending_bytes, 0U);
  store.close(20s);
  store.offer_object("late", some_object(9));
  EXPECT_EQ(store.stats().dropped, 4U);
  EXPECT_FALSE(restored_object(store, "2")) << "nobody reads any more";
}

TEST(SsdObjects, TwoStoresShareAFolder) {
  const TempFolder folder;
  SsdStore a(options(folder.path)), b(options(folder.path));
  EXPECT_TRUE(keep_object(a, "key", some_object(1)));
  EXPECT_FALSE(restored_object(b, "key")) << "not known there yet";
  EXPECT_TRUE(keep_object(b, "key", some_object(1)));
  for (SsdStore* store : {&a, &b}) {
    store->flush(20s);
    const ObjectLease found = restored_object(*store, "key");
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, *some_object(1));
  }
  for (const auto& file : files_in(folder.path)) std::filesystem::remove(file);
  EXPECT_FALSE(restored_object(a, "key"));
  b.flush(20s);
  EXPECT_EQ(b.stats().files, 0U);
  SsdOptions foreign = options(folder.path);
  foreign.identity = "another model";
  EXPECT_TRUE(keep_object(a, "key", some_object(1)));
  SsdStore other(foreign);
  other.flush(20s);
  EXPECT_FALSE(restored_object(other, "key"));
  EXPECT_EQ(useless(a.stats()) + useless(b.stats()) + useless(other.stats()), 0U);
}

/// What will stand before a model: features from memory, else from SSD, else from the encoder.
struct FakeEncoder {
  explicit FakeEncoder(const std::filesystem::path& folder) : store(options(folder)) {
    store.flush(20s);
  }
  ObjectLease features(uint32_t image) {
    const std::string key = "encoder 1, image " + std::to_string(image);
    ObjectLease object = objects.take(key);
    if (object == nullptr) {
      object = restored_object(store, key);
      if (object == nullptr) {
        ++encodes;
        object = some_object(image);
        store.offer_object(key, object);
      }
      objects.put(key, object);
    }
    objects.check_integrity();
    return object;
  }
  int encodes = 0;
  SsdStore store;
  Retention retention{40'000};
  ObjectCache objects{retention};
};

TEST(SsdObjects, AnInputIsEncodedOnceAndAfterARestartNotAtAll) {
  const TempFolder folder;
  for (const bool restarted : {false, true}) {
    FakeEncoder encoder(folder.path);
    EXPECT_EQ(*encoder.features(1), *some_object(1));
    EXPECT_EQ(encoder.features(1), encoder.features(1));
    EXPECT_EQ(encoder.encodes, restarted ? 0 : 1);
    for (uint32_t image = 2; image < 20; ++image) encoder.features(image);  // drives out the first
    EXPECT_TRUE(encoder.store.flush(20s));
    encoder.store.collect();
    EXPECT_EQ(*encoder.features(1), *some_object(1));
    EXPECT_EQ(encoder.encodes, restarted ? 0 : 19);
    EXPECT_GT(encoder.objects.stats().evictions, 0U);
  }
}

TEST(SsdObjects, AReportTellsObjectsFromRowsAndSoundFromDamagedOnes) {
  const TempFolder folder;
  const CacheFolder cache(folder.path);
  std::filesystem::create_directory(folder.path / group_of(kIdentity));
  const auto report = [&](const Record& record) {
    const auto path = new_file(folder.path);
    write_file(path, record);
    const auto found = report_on(cache, std::filesystem::relative(path, folder.path), true);
    std::filesystem::remove(path);
    return *found;
  };
  Record record = record_of("key", *some_object(1));
  EXPECT_EQ(report(record).fault, "");
  EXPECT_EQ(report(record).identity, kIdentity);
  EXPECT_TRUE(report(record).object);
  record[record.size() - 100] ^= std::byte{1};
  EXPECT_EQ(report(record).fault, "damaged");
  EXPECT_TRUE(report(record).damaged);
}

}  // namespace
}  // namespace cohort::store::test
