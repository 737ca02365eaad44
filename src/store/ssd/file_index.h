#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "store/ssd/saved_prefix.h"

struct sqlite3;
struct sqlite3_stmt;

namespace cohort::store {

/// Remembers what the heads of an SSD cache's files say, so that a start need not read them: the
/// SQLite database index.sqlite in the folder, shared by all servers there. It is a hint: what a
/// file holds, its head decides. One that is damaged, cut or removed is made anew, which is said
/// once on stderr; where none can be had or written, this one knows nothing, and nothing is an
/// error.
///   thread  one at a time
class FileIndex {
 public:
  explicit FileIndex(const std::filesystem::path& folder);
  ~FileIndex();
  FileIndex(const FileIndex&) = delete;
  FileIndex& operator=(const FileIndex&) = delete;

  /// What the file of that name and size holds, if that is known.
  std::optional<SavedPrefix> find(const std::string& file, uint64_t bytes);
  void put(const std::string& file, uint64_t bytes, const SavedPrefix& prefix);
  /// The key of the object in the file of that name and size, if that is known.
  std::optional<std::string> find_object(const std::string& file, uint64_t bytes);
  void put_object(const std::string& file, uint64_t bytes, const std::string& key);
  void erase(const std::string& file);
  /// Forgets all other files.
  void keep(const std::set<std::string>& files);

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

  void open();
  void start_anew();
  /// Null without a database.
  Statement prepare(const char* sql);
  ///   returns  whether there is a row
  bool step(const Statement& statement);

  const std::filesystem::path path_;
  sqlite3* db_ = nullptr;
  bool lost_ = false;  // to be made anew
  bool said_ = false;
  std::chrono::steady_clock::time_point deadline_;  // of the statement that runs
};

}  // namespace cohort::store
