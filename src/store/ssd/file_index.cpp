#include "store/ssd/file_index.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/say.h"
#include "store/ssd/cache_folder.h"

namespace cohort::store {
namespace {

// Nothing is mapped: who cuts a mapped file short ends the processes that read it. So there is no
// write-ahead log, whose -shm is mapped; one of an earlier version is folded in while nobody else
// has the file. Nor is anything synced: after a power cut the index may be damaged, as any hint.
constexpr const char* kSetUp = R"(
  PRAGMA trusted_schema = OFF;
  PRAGMA mmap_size = 0;
  PRAGMA locking_mode = EXCLUSIVE;
  PRAGMA journal_mode = DELETE;
  PRAGMA locking_mode = NORMAL;
  PRAGMA synchronous = OFF;
  DROP TABLE IF EXISTS files_1;
  CREATE TABLE IF NOT EXISTS files_2 (
    file TEXT PRIMARY KEY, bytes INTEGER, space BLOB, floor INTEGER, reusable INTEGER, ids BLOB,
    generation BLOB);
  SELECT file, bytes, space, floor, reusable, ids, generation FROM files_2 LIMIT 1;
  CREATE TABLE IF NOT EXISTS objects_1 (file TEXT PRIMARY KEY, bytes INTEGER, key BLOB);
  SELECT file, bytes, key FROM objects_1 LIMIT 1;)";
constexpr int kBusyMs = 2000;  // while another server writes
// A statement here touches a row, or walks through names once. What takes longer is not ours: a
// view in the place of a table may have no end.
constexpr std::chrono::seconds kStatementTime{5};
constexpr int kInstructionsPerLook = 10000;

/// It is damaged, its tables are not ours, or the file is no longer the one in the folder.
bool is_lost(int code) {
  const int kind = code & 0xff;
  return kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB || kind == SQLITE_ERROR ||
         code == SQLITE_READONLY_DBMOVED;
}

void bind(sqlite3_stmt* statement, int at, const std::string& text) {
  sqlite3_bind_text(statement, at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}

std::span<const std::byte> blob(sqlite3_stmt* statement, int column) {
  const void* data = sqlite3_column_blob(statement, column);
  return {static_cast<const std::byte*>(data),
          static_cast<size_t>(sqlite3_column_bytes(statement, column))};
}

/// A private, regular file, made if there is none.
bool is_own_file(const std::filesystem::path& path) {
  const Descriptor fd(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat status {};
  return fd.get() >= 0 && ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode);
}

/// What SQLite may keep beside the index.
constexpr std::array kBeside{"-journal", "-wal", "-shm"};

/// Whether those are files: opening a pipe would wait forever.
bool has_no_pipes(const std::filesystem::path& path) {
  return std::ranges::none_of(kBeside, [&](const char* ending) {
    std::error_code error;
    const auto status = std::filesystem::status(path.string() + ending, error);
    return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  });
}

}  // namespace

void FileIndex::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

FileIndex::FileIndex(const std::filesystem::path& folder) : path_(folder / "index.sqlite") {
  open();
  if (lost_) start_anew();
}

FileIndex::~FileIndex() {
  sqlite3_close_v2(db_);
}

void FileIndex::open() {
  if (!is_own_file(path_) || !has_no_pipes(path_)) return;
  int code = sqlite3_open_v2(path_.c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr);
  if (code == SQLITE_OK) {
    sqlite3_extended_result_codes(db_, 1);
    sqlite3_busy_timeout(db_, kBusyMs);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
    const auto too_long = [](void* self) -> int {
      return std::chrono::steady_clock::now() > static_cast<FileIndex*>(self)->deadline_;
    };
    sqlite3_progress_handler(db_, kInstructionsPerLook, too_long, this);
    deadline_ = std::chrono::steady_clock::now() + kStatementTime;
    code = sqlite3_exec(db_, kSetUp, nullptr, nullptr, nullptr);
  }
  if (code == SQLITE_OK) return;
  lost_ = is_lost(code) || code == SQLITE_INTERRUPT;  // or its tables have no end
  sqlite3_close_v2(db_);
  db_ = nullptr;
}

void FileIndex::start_anew() {
  if (!std::exchange(said_, true)) say("cohort: SSD cache: the index was lost and is made anew\n");
  int moved = 0;  // removed, perhaps for a new one of another server
  if (db_ != nullptr) sqlite3_file_control(db_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  sqlite3_close_v2(db_);
  db_ = nullptr;
  std::error_code error;
  if (moved == 0) {
    std::filesystem::remove(path_, error);
    for (const char* ending : kBeside) std::filesystem::remove(path_.string() + ending, error);
  }
  lost_ = false;
  open();
}

FileIndex::Statement FileIndex::prepare(const char* sql) {
  if (lost_) start_anew();
  sqlite3_stmt* statement = nullptr;
  if (db_ != nullptr) {
    deadline_ = std::chrono::steady_clock::now() + kStatementTime;
    lost_ = is_lost(sqlite3_prepare_v2(db_, sql, -1, &statement, nullptr));
  }
  return Statement(statement);
}

bool FileIndex::step(const Statement& statement) {
  const int code = sqlite3_step(statement.get());
  lost_ = lost_ || is_lost(code);
  if ((code & 0xff) == SQLITE_INTERRUPT) {  // too slow to be of use, but perhaps not to others
    sqlite3_close_v2(db_);
    db_ = nullptr;
  }
  return code == SQLITE_ROW;
}

std::optional<SavedPrefix> FileIndex::find(const std::string& file, uint64_t bytes) {
  const Statement found = prepare(
      "SELECT space, floor, reusable, ids, generation FROM files_2 "
      "WHERE file = ? AND bytes = ?");
  if (found == nullptr) return std::nullopt;
  bind(found.get(), 1, file);
  sqlite3_bind_int64(found.get(), 2, static_cast<int64_t>(bytes));
  if (!step(found)) return std::nullopt;
  const auto space = blob(found.get(), 0), ids = blob(found.get(), 3);
  SavedPrefix prefix{Namespace(reinterpret_cast<const char*>(space.data()), space.size()),
                     std::vector<int32_t>(ids.size() / sizeof(int32_t)),
                     sqlite3_column_int64(found.get(), 1), sqlite3_column_int64(found.get(), 2)};
  const auto tokens = static_cast<int64_t>(prefix.ids.size());
  if (tokens == 0 || prefix.floor < 0 || prefix.floor > tokens) return std::nullopt;
  std::memcpy(prefix.ids.data(), ids.data(), prefix.ids.size() * sizeof(int32_t));
  const auto generation = blob(found.get(), 4);
  if (generation.empty()) return prefix;
  boost::system::error_code failed;
  const std::string_view text(reinterpret_cast<const char*>(generation.data()), generation.size());
  prefix.generation = generation_of(boost::json::parse(text, failed), prefix.ids);
  return prefix.generation ? std::optional(std::move(prefix)) : std::nullopt;
}

void FileIndex::put(const std::string& file, uint64_t bytes, const SavedPrefix& prefix) {
  const Statement put = prepare("INSERT OR REPLACE INTO files_2 VALUES (?, ?, ?, ?, ?, ?, ?)");
  if (put == nullptr) return;
  bind(put.get(), 1, file);
  sqlite3_bind_int64(put.get(), 2, static_cast<int64_t>(bytes));
  sqlite3_bind_blob64(put.get(), 3, prefix.space.data(), prefix.space.size(), SQLITE_TRANSIENT);
  sqlite3_bind_int64(put.get(), 4, prefix.floor);
  sqlite3_bind_int64(put.get(), 5, prefix.minimum_reusable_offset);
  sqlite3_bind_blob64(put.get(), 6, prefix.ids.data(), prefix.ids.size() * sizeof(int32_t),
                      SQLITE_TRANSIENT);
  std::string generation;  // empty = none
  if (prefix.generation) generation = boost::json::serialize(about_generation(prefix));
  sqlite3_bind_blob64(put.get(), 7, generation.data(), generation.size(), SQLITE_TRANSIENT);
  step(put);
}

std::optional<std::string> FileIndex::find_object(const std::string& file, uint64_t bytes) {
  const Statement found = prepare("SELECT key FROM objects_1 WHERE file = ? AND bytes = ?");
  if (found == nullptr) return std::nullopt;
  bind(found.get(), 1, file);
  sqlite3_bind_int64(found.get(), 2, static_cast<int64_t>(bytes));
  if (!step(found)) return std::nullopt;
  const auto key = blob(found.get(), 0);
  return std::string(reinterpret_cast<const char*>(key.data()), key.size());
}

void FileIndex::put_object(const std::string& file, uint64_t bytes, const std::string& key) {
  const Statement put = prepare("INSERT OR REPLACE INTO objects_1 VALUES (?, ?, ?)");
  if (put == nullptr) return;
  bind(put.get(), 1, file);
  sqlite3_bind_int64(put.get(), 2, static_cast<int64_t>(bytes));
  sqlite3_bind_blob64(put.get(), 3, key.data(), key.size(), SQLITE_TRANSIENT);
  step(put);
}

void FileIndex::erase(const std::string& file) {
  for (const char* sql :
       {"DELETE FROM files_2 WHERE file = ?", "DELETE FROM objects_1 WHERE file = ?"}) {
    const Statement erase = prepare(sql);
    if (erase == nullptr) return;
    bind(erase.get(), 1, file);
    step(erase);
  }
}

void FileIndex::keep(const std::set<std::string>& files) {
  std::set<std::string> gone;
  if (const Statement all = prepare("SELECT file FROM files_2 UNION SELECT file FROM objects_1")) {
    while (step(all)) {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(all.get(), 0));
      if (text != nullptr && !files.contains(text)) gone.insert(text);
    }
  }
  for (const std::string& file : gone) erase(file);
}

}  // namespace cohort::store
