// The SSD tier among damaged files, full disks, other servers and crashes: misses and counters.

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "base/error.h"
#include "store/ssd/file_report.h"
#include "tests/kv/fuzzed_models.h"
#include "tests/store/ssd_scene.h"
#include "tests/support/rounds.h"

namespace cohort::store::test {
namespace {

using cohort::test::rounds;

/// A cache with one file, and its bytes.
struct OneFile {
  explicit OneFile(const Layers& layers) : model(layers), ids(some_ids(70, 1)) {
    SsdStore store(options(folder.path));
    EXPECT_TRUE(keep(store, model, ids));
    const auto path = files_in(folder.path).front();
    whole = read_file(path);
    std::filesystem::remove(path);
  }
  /// What a store makes of a file of these bytes.
  std::optional<kv::RowCache> row_from(SsdStore& store, const Record& record) {
    const auto path = new_file(folder.path);
    write_file(path, record);
    store.flush(20s);
    auto row = restored(store, model, ids);
    std::filesystem::remove(path);
    store.flush(20s);
    return row;
  }
  TempFolder folder;
  PrefixModel model;
  Ids ids;
  Record whole;
};

TEST(SsdHarm, AFlippedByteAnywhereIsAMiss) {
  for (const auto& model : kv::test::fuzzed_models()) {
    SCOPED_TRACE(model.name);
    OneFile file(model.layers);
    SsdStore store(options(file.folder.path));
    ASSERT_TRUE(file.row_from(store, file.whole));
    std::mt19937 random(3);
    for (size_t i = 0; i < 500 * rounds(); ++i) {
      Record record = file.whole;
      const size_t at = i % 2 == 0 ? random() % 4096 % record.size() : random() % record.size();
      record[at] ^= std::byte(1u << random() % 8);
      ASSERT_FALSE(file.row_from(store, record)) << at;
    }
    EXPECT_EQ(store.stats().hits, 1U);
    EXPECT_EQ(store.stats().read_errors, 0U);
    EXPECT_GT(useless(store.stats()), 200U);
    EXPECT_EQ(file.model.used_bytes(), 0U);
  }
}

TEST(SsdHarm, AFileCutAnywhereIsAMiss) {
  OneFile file(kv::test::fuzzed_models().back().layers);
  SsdStore store(options(file.folder.path));
  std::mt19937 random(4);
  for (size_t size = 0; size < file.whole.size();
       size += 1 + random() % (file.whole.size() / 200)) {
    const Record cut(file.whole.begin(), file.whole.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(file.row_from(store, cut)) << size;
  }
  Record longer = file.whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(file.row_from(store, longer));
  EXPECT_TRUE(file.row_from(store, file.whole));
}

TEST(SsdHarm, AChangedFileWithARightChecksumDoesNoHarm) {
  OneFile file(kv::test::fuzzed_models().back().layers);
  SsdStore store(options(file.folder.path));
  std::mt19937 random(5);
  for (size_t i = 0; i < 300 * rounds(); ++i) {
    Record record = file.whole;
    record[random() % 4096 % record.size()] ^= std::byte(1u << random() % 8);
    kv::test::repair(record);
    const auto row = file.row_from(store, record);
    if (row) file.model.check(PrefixCache(0), {&*row});
  }
  EXPECT_EQ(file.model.used_bytes(), 0U);
}

TEST(SsdHarm, HeadersThatLieAboutThePrefixAreRefused) {
  OneFile file({plain_layer(), window_layer()});
  SsdStore store(options(file.folder.path));
  const auto with = [&](const char* key, const boost::json::value& value) {
    boost::json::object header = kv::test::header_of(file.whole);
    header["about"].as_object()[key] = value;
    return file.row_from(store, kv::test::with_header(file.whole, header));
  };
  const std::string ids(kv::test::header_of(file.whole).at("about").at("ids").as_string());
  ASSERT_TRUE(with("ids", boost::json::value(ids)));
  using Lie = std::pair<const char*, boost::json::value>;
  const Lie lies[] = {Lie("ids", ids + "00000001"),
                      Lie("ids", ids.substr(8)),
                      Lie("ids", ids.substr(1)),
                      Lie("ids", ids.substr(8) + "+0000001"),
                      Lie("ids", ""),
                      Lie("ids", 7),
                      Lie("floor", -1),
                      Lie("floor", 71),
                      Lie("floor", "0"),
                      Lie("minimumReusableOffset", 70),
                      Lie("minimumReusableOffset", INT64_MAX),
                      Lie("identity", "another"),
                      Lie("identity", nullptr),
                      Lie("namespace", "m")};
  for (const auto& [key, value] : lies) {
    EXPECT_FALSE(with(key, value)) << key << " " << boost::json::serialize(value);
  }
  // A floor that is too low is found out by the row itself.
  OneFile coded({recurrent_layer()});
  SsdStore other(options(coded.folder.path));
  boost::json::object header = kv::test::header_of(coded.whole);
  header["about"].as_object()["floor"] = 0;
  write_file(new_file(coded.folder.path), kv::test::with_header(coded.whole, header));
  other.flush(20s);
  EXPECT_FALSE(restored(other, coded.model, first(coded.ids, 69)));
  EXPECT_EQ(other.stats().misses, 1U);
}

TEST(SsdHarm, LinksPipesAndGiantsInTheFolderAreNoFiles) {
  OneFile file({plain_layer()});
  const auto group = file.folder.path / group_of(kIdentity);
  const auto elsewhere = file.folder.path / "elsewhere";
  write_file(elsewhere, file.whole);
  std::filesystem::create_symlink(elsewhere, new_file(file.folder.path));
  ASSERT_EQ(::mkfifo(new_file(file.folder.path).c_str(), 0600), 0);
  std::filesystem::create_directory(new_file(file.folder.path));
  write_file(group / "notes.kv", file.whole);
  write_file(new_file(file.folder.path), {});
  Record giant(64, std::byte{0xff});  // a header of 4 GB in a file that has them, as holes
  std::copy_n(file.whole.begin(), 12, giant.begin());
  const auto holes = new_file(file.folder.path);
  write_file(holes, giant);
  std::filesystem::resize_file(holes, uint64_t{5} << 30);
  Record deep = file.whole;
  std::fill(deep.begin() + 16, deep.begin() + 400, std::byte{'['});
  write_file(new_file(file.folder.path), deep);
  SsdStore store(options(file.folder.path));
  EXPECT_TRUE(store.flush(20s));
  EXPECT_FALSE(restored(store, file.model, file.ids));
  EXPECT_EQ(store.stats().files, 0U);
  EXPECT_EQ(store.stats().damaged, 3U);
  EXPECT_TRUE(std::filesystem::exists(elsewhere));
  EXPECT_TRUE(std::filesystem::exists(group / "notes.kv"));
  // A file may become a link after it was listed.
  EXPECT_TRUE(keep(store, file.model, file.ids));
  const std::string name = CacheFolder(file.folder.path).list(group_of(kIdentity)).front().name;
  std::filesystem::remove(file.folder.path / name);
  std::filesystem::create_symlink(elsewhere, file.folder.path / name);
  EXPECT_FALSE(restored(store, file.model, file.ids));
  EXPECT_TRUE(std::filesystem::exists(elsewhere));
}

/// Runs `act` in a process of its own; fails unless it returns true.
void in_child(const std::function<bool()>& act) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(act() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(SsdHarm, APipeInThePlaceOfAJournalIsNotWaitedFor) {
  for (const char* ending : {"-journal", "-wal", "-shm"}) {
    const TempFolder folder;
    PrefixModel model({plain_layer()});
    {
      SsdStore store(options(folder.path));
      ASSERT_TRUE(keep(store, model, some_ids(100, 1)) && store.flush(20s));
    }
    ASSERT_EQ(::mkfifo((folder.path / (std::string("index.sqlite") + ending)).c_str(), 0600), 0);
    SsdStore store(options(folder.path));
    EXPECT_TRUE(keep(store, model, some_ids(100, 2)) && store.flush(20s)) << ending;
    EXPECT_TRUE(restored(store, model, some_ids(100, 1))) << ending;
  }
}

/// Does `harm` to the files of the index, again and again, under two servers that go on.
bool outlive(const std::function<void(const std::filesystem::path& file)>& harm, bool older) {
  const TempFolder folder;
  if (older) {  // an index as it was before
    sqlite3* db = nullptr;
    sqlite3_open((folder.path / "index.sqlite").c_str(), &db);
    sqlite3_exec(db, "PRAGMA journal_mode = WAL; CREATE TABLE files_1 (file)", {}, {}, {});
    sqlite3_close(db);
  }
  PrefixModel model({plain_layer()});
  SsdStore a(options(folder.path)), b(options(folder.path));
  for (uint32_t seed = 1; seed < 6; ++seed) {
    if (!keep(a, model, some_ids(100, 2 * seed))) return false;
    if (!keep(b, model, some_ids(100, 2 * seed + 1))) return false;
    if (!a.flush(20s) || !restored(a, model, some_ids(100, 2 * seed + 1))) return false;
    for (const char* ending : {"", "-wal", "-shm", "-journal"}) {
      const auto file = folder.path / (std::string("index.sqlite") + ending);
      if (std::filesystem::exists(file)) harm(file);
    }
  }
  SsdStore next(options(folder.path));
  if (!next.flush(20s)) return false;
  for (uint32_t seed = 2; seed < 12; ++seed) {
    if (!restored(next, model, some_ids(100, seed))) return false;
  }
  return useless(a.stats()) + useless(b.stats()) + useless(next.stats()) == 0;
}

TEST(SsdHarm, AnIndexThatIsHarmedWhileServersRunCostsNoEntry) {
  const auto harms = {
      +[](const std::filesystem::path& file) { std::filesystem::resize_file(file, 0); },
      +[](const std::filesystem::path& file) {
        std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
      },
      +[](const std::filesystem::path& file) { std::filesystem::remove(file); },
      +[](const std::filesystem::path& file) { write_file(file, Record(5000, std::byte{7})); },
      +[](const std::filesystem::path& file) {
        std::fstream(file) << std::string(std::filesystem::file_size(file), '\7');
      },
  };
  for (const auto& harm : harms) {
    for (const bool older : {false, true}) {
      in_child([&] { return outlive(harm, older); });
    }
  }
}

TEST(SsdHarm, AnIndexThatIsHarmedWhileAServerRunsIsMadeAnewWithOneLine) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdStore store(options(folder.path));
  ASSERT_TRUE(keep(store, model, some_ids(100, 1)));
  std::filesystem::resize_file(folder.path / "index.sqlite", 0);
  testing::internal::CaptureStderr();
  for (uint32_t seed = 2; seed < 6; ++seed) EXPECT_TRUE(keep(store, model, some_ids(100, seed)));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_NE(said.find("index"), std::string::npos) << said;
  sqlite3* db = nullptr;
  sqlite3_open((folder.path / "index.sqlite").c_str(), &db);
  EXPECT_EQ(sqlite3_exec(db, "DELETE FROM files_2", {}, {}, {}), SQLITE_OK);
  EXPECT_GE(sqlite3_changes(db), 3) << "those that were written since it was found out";
  sqlite3_close(db);
}

/// Reading what is mapped ends the process if the file has become shorter.
TEST(SsdHarm, NothingOfTheFolderIsMapped) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdStore store(options(folder.path));
  ASSERT_TRUE(keep(store, model, some_ids(100, 1)));
  ASSERT_TRUE(restored(store, model, some_ids(100, 1)));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    EXPECT_EQ(line.find(folder.path.string()), std::string::npos) << line;
  }
}

TEST(SsdHarm, AFullDiskCostsEntriesAndOneLine) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdStore store(options(folder.path));
  keep(store, model, some_ids(100, 1));
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{}, small{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  small = limit;
  small.rlim_cur = 30 << 10;
  ::setrlimit(RLIMIT_FSIZE, &small);
  testing::internal::CaptureStderr();
  for (uint32_t seed = 2; seed < 6; ++seed) EXPECT_FALSE(keep(store, model, some_ids(1000, seed)));
  const std::string said = testing::internal::GetCapturedStderr();
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(store.stats().write_errors, 4U);
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_EQ(files_in(folder.path, ".tmp").size(), 0U);
  EXPECT_TRUE(restored(store, model, some_ids(100, 1)));
  EXPECT_TRUE(keep(store, model, some_ids(1000, 2)));
  EXPECT_TRUE(restored(store, model, some_ids(1000, 2)));
  EXPECT_EQ(model.used_bytes(), 0U);
}

TEST(SsdHarm, AReadOnlyFolderServesWhatItHas) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  {
    SsdStore store(options(folder.path));
    keep(store, model, some_ids(100, 1));
  }
  constexpr uid_t kNobody = 65534;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path)) {
    ASSERT_TRUE(::geteuid() != 0 || ::chown(entry.path().c_str(), kNobody, kNobody) == 0);
    ::chmod(entry.path().c_str(), entry.is_directory() ? 0500 : 0400);
  }
  ASSERT_TRUE(::geteuid() != 0 || ::chown(folder.path.c_str(), kNobody, kNobody) == 0);
  ::chmod(folder.path.c_str(), 0500);
  in_child([&] {
    if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) return false;
    SsdStore store(options(folder.path));
    return store.flush(20s) && restored(store, model, some_ids(100, 1)) &&
           !keep(store, model, some_ids(100, 2)) && store.stats().write_errors == 1 &&
           restored(store, model, some_ids(100, 1));
  });
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path)) {
    if (entry.is_directory()) ::chmod(entry.path().c_str(), 0700);
  }
  ::chmod(folder.path.c_str(), 0700);
}

TEST(SsdHarm, AVanishedFolderIsAMissAndAFolderThatCannotBeIsAnError) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  const auto inner = folder.path / "inner";
  SsdStore store(options(inner));
  keep(store, model, some_ids(100, 1));
  const auto found = store.longest("n", some_ids(100, 1));
  ASSERT_TRUE(found);
  std::filesystem::remove_all(inner);
  EXPECT_FALSE(await(store, store.restore(*found, model.row())));
  EXPECT_FALSE(keep(store, model, some_ids(100, 2)));
  EXPECT_FALSE(restored(store, model, some_ids(100, 1)));
  EXPECT_EQ(store.stats().write_errors, 1U);
  EXPECT_EQ(store.stats().files, 0U);
  EXPECT_FALSE(std::filesystem::exists(inner));
  write_file(inner, Record(3));
  EXPECT_THROW(SsdStore(options(inner)), Error);
  EXPECT_THROW(SsdStore(options(inner / "deeper")), Error);
}

TEST(SsdHarm, WhatAnotherServerRemovesOrAddsIsNoticed) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  SsdStore a(options(folder.path)), b(options(folder.path));
  keep(a, model, some_ids(100, 1));
  b.flush(20s);
  EXPECT_TRUE(restored(b, model, some_ids(100, 1)));
  keep(a, model, some_ids(100, 1) + some_ids(50, 2));  // removes the first
  EXPECT_FALSE(restored(b, model, some_ids(100, 1)));
  b.flush(20s);
  EXPECT_TRUE(restored(b, model, some_ids(100, 1)));
  EXPECT_EQ(useless(a.stats()) + useless(b.stats()), 0U);
}

/// Keeps and restores rows of few, overlapping prefixes; false if a row is not what it must be.
bool use(const std::filesystem::path& folder, uint32_t seed, int turns) {
  PrefixModel model({plain_layer(), recurrent_layer()});
  SsdStore store(options(folder, 600'000));
  std::minstd_rand random(seed + 1);
  bool right = true;
  for (int i = 0; i < turns; ++i) {
    const Ids ids = some_ids(20 + random() % 200, static_cast<uint32_t>(random() % 6));
    if (random() % 2 == 0) {
      store.offer("n", ids, model.row_of(ids));
    } else if (const auto row = restored(store, model, ids)) {
      right = right && image(*row) == image(model.row_of(first(ids, row->offset())));
    }
    if (random() % 8 == 0) right = store.flush(20s) && right;
    store.collect();
  }
  const SsdStats stats = store.stats();
  return right && stats.hits > 0 && useless(stats) == 0 && stats.write_errors == 0;
}

TEST(SsdHarm, ServersShareAFolder) {
  const TempFolder folder;
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (uint32_t seed = 0; seed < 3; ++seed) {
    threads.emplace_back(
        [&, seed] { right += use(folder.path, seed, static_cast<int>(60 * rounds())); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 3);
}

TEST(SsdHarm, ProcessesShareAFolder) {
  const TempFolder folder;
  std::vector<pid_t> children;
  for (uint32_t seed = 10; seed < 13; ++seed) {
    children.push_back(::fork());
    if (children.back() == 0) {
      ::_exit(use(folder.path, seed, static_cast<int>(60 * rounds())) ? 0 : 1);
    }
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

/// Reads a whole file of the cache; throws unless it is what it says.
void verify(const std::filesystem::path& path) {
  const Record record = read_file(path);
  const kv::RowRecord read(record);
  EXPECT_EQ(read.about().at("identity").as_string(), kIdentity);
}

TEST(SsdHarm, AServerThatIsKilledLeavesWholeFilesOnly) {
  const TempFolder folder;
  std::mt19937 random(8);
  size_t files = 0, temporary = 0;
  for (uint32_t cycle = 0; cycle < 5 * rounds(); ++cycle) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      PrefixModel model({plain_layer()});
      SsdStore store(options(folder.path, 20'000'000));
      for (uint32_t seed = cycle * 1000;; ++seed) {
        store.offer("n", some_ids(1500, seed), model.row_of(some_ids(1500, seed)));
        store.collect();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 100));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const auto& path : files_in(folder.path)) ASSERT_NO_THROW(verify(path)) << path;
    files = files_in(folder.path).size();
    temporary += files_in(folder.path, ".tmp").size();
    SsdStore store(options(folder.path));
    EXPECT_TRUE(store.flush(20s));
    EXPECT_EQ(store.stats().files, files);
    EXPECT_EQ(useless(store.stats()), 0U);
    EXPECT_EQ(files_in(folder.path, ".tmp").size(), 0U);
  }
  EXPECT_GT(files, 0U);
  RecordProperty("temporary", static_cast<int>(temporary));
}

TEST(SsdHarm, WhatWasFlushedSurvivesAKill) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    SsdStore store(options(folder.path));
    for (uint32_t seed = 0; seed < 10; ++seed) {
      store.offer("n", some_ids(300, seed), model.row_of(some_ids(300, seed)));
    }
    store.flush(20s);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  SsdStore store(options(folder.path));
  store.flush(20s);
  for (uint32_t seed = 0; seed < 10; ++seed) {
    EXPECT_TRUE(restored(store, model, some_ids(300, seed))) << seed;
  }
}

TEST(SsdHarm, AReportTellsSoundFilesFromOthers) {
  OneFile file({plain_layer()});
  const CacheFolder cache(file.folder.path);
  const auto report = [&](const Record& record) {
    const auto path = new_file(file.folder.path);
    write_file(path, record);
    const auto found = report_on(cache, std::filesystem::relative(path, file.folder.path), true);
    std::filesystem::remove(path);
    return *found;
  };
  EXPECT_EQ(report(file.whole).fault, "");
  EXPECT_EQ(report(file.whole).identity, kIdentity);
  EXPECT_EQ(report(file.whole).tokens, 70);
  Record changed = file.whole;
  changed[changed.size() - 100] ^= std::byte{1};
  EXPECT_EQ(report(changed).fault, "damaged");
  boost::json::object header = kv::test::header_of(file.whole);
  header["about"].as_object()["identity"] = "another";
  EXPECT_NE(report(kv::test::with_header(file.whole, header)).fault, "");
  EXPECT_FALSE(report_on(cache, group_of(kIdentity) + "/none", true));
}

TEST(SsdHarm, AFileThatIsBeingWrittenIsNotSwept) {
  const TempFolder folder;
  const CacheFolder cache(folder.path), other(folder.path);
  const std::string group = group_of(kIdentity);
  std::string name;
  {
    NewFile file = cache.create(group, 1000);
    file.write(Record(1000));
    other.sweep();
    EXPECT_EQ(files_in(folder.path, ".tmp").size(), 1U);
    EXPECT_EQ(other.make_room(0).second, 1000U);
    file.publish();
    name = file.name();
    { NewFile given_up = cache.create(group, 10); }
  }
  EXPECT_EQ(files_in(folder.path, ".tmp").size(), 0U);
  EXPECT_EQ(other.lease(name).bytes(), 1000U);
  write_file(folder.path / group / (random_hex(32) + ".tmp"), Record(7));  // its writer is dead
  other.sweep();
  EXPECT_EQ(files_in(folder.path, ".tmp").size(), 0U);
  EXPECT_EQ(other.list().size(), 1U);
}

}  // namespace
}  // namespace cohort::store::test
