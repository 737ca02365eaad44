#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "kv/row_cache.h"
#include "kv/row_record.h"
#include "store/object_cache.h"
#include "store/ssd/cache_folder.h"
#include "store/ssd/file_catalog.h"
#include "store/ssd/file_index.h"
#include "store/ssd/ssd_stats.h"

namespace cohort::store {

struct SsdOptions {
  std::filesystem::path folder;
  /// All that must be equal for saved rows to be of use, whatever their namespace: model, config,
  /// tokenizer, versions, device. UTF-8, as namespaces are.
  std::string identity;
  /// Of all files in the folder; 0 = no limit.
  uint64_t most_bytes = 0;
  /// Of snapshots and objects that wait to be written; what goes beyond is not taken. A file with
  /// an object beyond it is not read.
  size_t most_pending_bytes = size_t{1} << 30;
  /// Called on an I/O thread when collect() has what was restored or a snapshot that was written.
  std::function<void()> on_done = [] {};
};

/// The cold tier of the prefix cache: rows in files of a folder that outlives the server and may be
/// shared with others, and beside them objects. The engine offers snapshots and goes on; one thread
/// writes them behind it. Another one reads files straight into the blocks of rows that the engine
/// made. Whatever happens to folder and files, it costs hits and is counted, and each cause is said
/// once on stderr.
///
/// A cache's references to blocks are the engine's: so the threads read and fill memory, but
/// snapshots and rows come back through collect(), and die on the engine thread.
///   thread  engine, unless said otherwise; the memory of the rows outlives it
class SsdStore {
 public:
  using Clock = std::chrono::steady_clock;
  struct Restored {
    uint64_t ticket = 0;
    std::optional<kv::RowCache> row;  // at the tokens that were found; nullopt = compute them
    ObjectLease object;               // null = no object, or make it
  };

  ///   throws  Error{kInvalidRequest} if the folder cannot be made or read
  explicit SsdStore(SsdOptions options);
  /// Leaves what is not written.
  ~SsdStore();
  SsdStore(const SsdStore&) = delete;
  SsdStore& operator=(const SsdStore&) = delete;

  /// Keeps a snapshot, a clone that the caller made, for the ids up to its offset, unless a file
  /// has them already and it is no checkpoint. Unless it is one, it replaces in the end files of
  /// their prefixes that it can be cut back to.
  ///   of    the answer that it is a checkpoint of, whose earlier ones it replaces; with no tokens,
  ///         the answer that has ended: none of its checkpoints is left
  ///   cost  ids, blocks of the snapshot
  void offer(const Namespace& space, std::span<const int32_t> ids, kv::RowCache snapshot,
             const std::optional<Generation>& of = {});

  /// The unfinished answer of that key and fingerprint that a durable checkpoint holds; after the
  /// start, waits a little until it is known what the folder has.
  ///   thread  any
  std::optional<Generation> generation(const std::string& key, const std::string& fingerprint);

  /// Keeps an object, unless a file has one of that key already.
  ///   cost  its metadata
  void offer_object(const std::string& key, ObjectLease object);

  /// The longest prefix of `ids` that a file could give: 1 to ids.size() - 1 tokens.
  ///   cost  ids
  std::optional<SsdMatch> longest(const Namespace& space, std::span<const int32_t> ids);

  /// Begins to fill an empty row, made as those of the namespace are, with what was found.
  ///   returns  the ticket under which collect() hands it out
  ///   throws   Error{kOverloaded} without memory for the whole row in the file
  uint64_t restore(SsdMatch found, kv::RowCache empty);

  /// Begins to read the object of that key, UTF-8 as namespaces are.
  ///   returns  the ticket under which collect() hands it out; nullopt if no file has it
  std::optional<uint64_t> restore_object(const std::string& key);

  /// What was restored, or could not be; frees snapshots that were written. To be called once
  /// an iteration.
  std::vector<Restored> collect();

  /// Waits until all that was offered so far is durable, and the folder has been looked through for
  /// files of others.
  ///   thread   any
  ///   returns  false if `limit` passed, or something offered since the last flush is lost
  bool flush(std::chrono::milliseconds limit);
  /// Takes no more offers, waits as flush does, then stops the threads. Longer than `limit` by one
  /// call of the system at most. Rows that are being restored become misses.
  ///   returns  as flush
  bool close(std::chrono::milliseconds limit);

  ///   thread  any
  SsdStats stats() const;
  /// Counts the references to blocks of all that is pending.
  void check_integrity(kv::BlockCensus& census) const;

 private:
  struct RowWrite {
    SavedPrefix prefix;
    kv::RowCache row;
    std::string answer;  // key of that whose checkpoints it replaces; "" = none
  };
  struct ObjectWrite {
    std::string key;
    ObjectLease object;
  };
  struct Write {
    std::variant<RowWrite, ObjectWrite> what;
    size_t bytes = 0;
  };
  struct RowRead {
    SsdMatch found;
    kv::RowCache row;
    bool filled = false;
  };
  struct ObjectRead {
    std::string key;
    ObjectLease object = nullptr;  // once it was read
  };
  struct Read {
    uint64_t ticket = 0;
    std::string file;
    std::variant<RowRead, ObjectRead> what;
  };

  void line_up(std::list<Write> job);
  /// With the lock held.
  ///   returns  the ticket
  uint64_t line_up(std::list<Read>& job);
  /// Whether a file has all of a row. With the lock held, as the next two.
  bool has(const SavedPrefix& prefix) const;
  /// Whether there is nothing to do: a file has it, and it replaces no checkpoints.
  bool is_there(const Write& job) const;
  /// An earlier checkpoint of the same answer that still waits to be written, or the end.
  std::list<Write>::iterator earlier(const Write& job);
  void write_loop();
  void read_loop();
  bool write(const Write& job);
  void save(const RowWrite& job);
  void save(const ObjectWrite& job);
  ///   returns  files that it replaces
  std::vector<std::string> save_file(const RowWrite& job);
  /// Makes a file of what a writer hands out, and room for it.
  ///   returns  its name
  template <class Writer>
  std::string make_file(const Writer& writer);
  void fill(Read& job);
  /// Reads a record into what is to take it.
  ///   returns  false if it is of something else
  bool fill(RowRead& job, kv::RecordReader& record);
  bool fill(ObjectRead& job, kv::RecordReader& record);
  /// Takes in what the folder holds now.
  void look_through();
  void look_into(const CachedFile& file);
  /// Takes a file for gone; it is removed if it is damaged.
  void lose(const std::string& file, const std::exception& error);
  void forget(const std::vector<std::string>& removed);
  /// Says why something failed, the first time.
  void complain(const std::exception& error);

  const SsdOptions options_;
  const std::string group_;
  const CacheFolder folder_;
  FileIndex index_;             // of the writing thread, as the next
  std::set<std::string> idle_;  // files that are of no use to look into again
  uint64_t folder_bytes_ = 0;   // of all files, as of the last look and what was written since

  mutable std::mutex mutex_;
  std::condition_variable work_;      // for the threads
  std::condition_variable progress_;  // for flush
  FileCatalog catalog_;
  std::list<Write> writes_, written_;  // the first of writes_ is being written
  std::list<Read> reads_, read_;       // the first of reads_ is being read
  std::vector<std::string> doubtful_;  // files that the index was wrong about
  std::set<std::string> said_;
  SsdStats counts_;
  uint64_t last_ticket_ = 0;
  uint64_t offered_ = 0, finished_ = 0;  // snapshots
  bool failed_ = false;                  // one of them, since the last flush
  uint64_t looks_wanted_ = 1, looks_ = 0;
  bool open_ = true;  // to offers
  std::atomic<bool> stop_ = false;

  std::thread writer_, reader_;
};

}  // namespace cohort::store
