#include "store/ssd/ssd_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/say.h"
#include "store/ssd/saved_object.h"

namespace cohort::store {
namespace {

/// How often an idle server looks for files of others.
constexpr std::chrono::seconds kLookEvery{10};
/// How long a retry waits for the first look, which may have to read the heads of many files.
constexpr std::chrono::seconds kFirstLook{2};

size_t bytes_of(const kv::RowCache& row) {
  size_t bytes = 0;
  for (size_t i = 0; i < row.layers(); ++i) bytes += state_bytes(row.layer(i));
  return bytes;
}

/// Does a piece of a thread's work; whatever fails there, serving goes on.
template <class Act, class Failed>
bool attempt(const Act& act, const Failed& failed) {
  try {
    act();
    return true;
  } catch (const std::exception& error) {
    failed(error);
    return false;
  }
}

}  // namespace

SsdStore::SsdStore(SsdOptions options)
    : options_(std::move(options)),
      group_(group_of(options_.identity)),
      folder_(options_.folder),
      index_(options_.folder),
      writer_([this] { write_loop(); }),
      reader_([this] { read_loop(); }) {}

SsdStore::~SsdStore() {
  close({});
}

void SsdStore::offer(const Namespace& space, std::span<const int32_t> ids, kv::RowCache snapshot,
                     const std::optional<Generation>& of) {
  const int64_t tokens = snapshot.offset();
  check(tokens <= static_cast<int64_t>(ids.size()), "the tokens of a snapshot are known");
  ids = ids.first(static_cast<size_t>(tokens));
  const int64_t floor = floor_of(snapshot);
  if (tokens == 0 || floor > tokens) return;
  const size_t bytes = bytes_of(snapshot);
  std::list<Write> job;
  SavedPrefix prefix{space, {ids.begin(), ids.end()}, floor, snapshot.minimum_reusable_offset()};
  if (of && !of->answer.empty()) prefix.generation = of;
  job.push_back({RowWrite{std::move(prefix), std::move(snapshot), of ? of->key : ""}, bytes});
  line_up(std::move(job));
}

void SsdStore::offer_object(const std::string& key, ObjectLease object) {
  const size_t bytes = bytes_of(*object);
  std::list<Write> job;
  job.push_back({ObjectWrite{key, std::move(object)}, bytes});
  line_up(std::move(job));
}

void SsdStore::line_up(std::list<Write> job) {
  const size_t bytes = job.front().bytes;
  const std::lock_guard lock(mutex_);
  if (is_there(job.front())) return;
  const auto place = earlier(job.front());  // given up: what waits there dies here, with the job
  const size_t freed = place == writes_.end() ? 0 : place->bytes;
  const size_t pending = counts_.pending_bytes - freed + bytes;
  const bool too_large = options_.most_bytes > 0 && bytes > options_.most_bytes;
  if (!open_ || too_large || pending > options_.most_pending_bytes) {
    const auto* row = std::get_if<RowWrite>(&job.front().what);
    if (row != nullptr && row->prefix.generation) return;  // the next checkpoint serves as well
    ++counts_.dropped;
    failed_ = true;
    return;
  }
  counts_.pending_bytes = pending;
  if (place != writes_.end()) return std::swap(*place, job.front());
  ++offered_;
  writes_.splice(writes_.end(), job);
  work_.notify_all();
}

std::optional<Generation> SsdStore::generation(const std::string& key,
                                               const std::string& fingerprint) {
  std::unique_lock lock(mutex_);
  progress_.wait_for(lock, kFirstLook, [&] { return stop_ || looks_ > 0; });
  return catalog_.generation(key, fingerprint);
}

std::optional<SsdMatch> SsdStore::longest(const Namespace& space, std::span<const int32_t> ids) {
  const std::lock_guard lock(mutex_);
  // The last token is always computed: the next one is sampled from what it gives.
  auto found = ids.empty() ? std::nullopt : catalog_.longest(space, ids.first(ids.size() - 1));
  if (!found) ++counts_.misses;
  return found;
}

uint64_t SsdStore::restore(SsdMatch found, kv::RowCache empty) {
  empty.restore(found.offset, found.prefix.minimum_reusable_offset);
  std::list<Read> job;
  std::string file = found.file;
  job.push_back({0, std::move(file), RowRead{std::move(found), std::move(empty)}});
  const std::lock_guard lock(mutex_);
  return line_up(job);
}

std::optional<uint64_t> SsdStore::restore_object(const std::string& key) {
  const std::lock_guard lock(mutex_);
  std::optional<std::string> file = catalog_.find_object(key);
  if (!file) {
    ++counts_.misses;
    return std::nullopt;
  }
  std::list<Read> job;
  job.push_back({0, std::move(*file), ObjectRead{key}});
  return line_up(job);
}

uint64_t SsdStore::line_up(std::list<Read>& job) {
  job.front().ticket = ++last_ticket_;
  std::list<Read>& line = open_ ? reads_ : read_;  // nobody reads once this is closed
  line.splice(line.end(), job);
  work_.notify_all();
  return last_ticket_;
}

std::vector<SsdStore::Restored> SsdStore::collect() {
  std::list<Write> written;
  std::list<Read> read;
  {
    const std::lock_guard lock(mutex_);
    written.swap(written_);
    read.swap(read_);
    for (const Write& job : written) counts_.pending_bytes -= job.bytes;
  }
  std::vector<Restored> found;
  uint64_t hits = 0, tokens = 0, bytes = 0;
  for (Read& job : read) {
    found.push_back({job.ticket, std::nullopt, nullptr});
    if (auto* object = std::get_if<ObjectRead>(&job.what)) {
      if (object->object == nullptr) continue;
      bytes += bytes_of(*object->object);
      found.back().object = std::move(object->object);
    } else {
      auto& [match, row, filled] = std::get<RowRead>(job.what);
      if (!filled || floor_of(row) > match.tokens) continue;
      tokens += static_cast<uint64_t>(match.tokens);
      bytes += bytes_of(row);
      row.trim(match.tokens);
      found.back().row = std::move(row);
    }
    ++hits;
  }
  const std::lock_guard lock(mutex_);
  counts_.hits += hits;
  counts_.misses += read.size() - hits;
  counts_.hit_tokens += tokens;
  counts_.restored_bytes += bytes;
  return found;
}

bool SsdStore::flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const uint64_t offered = offered_, looks = ++looks_wanted_;
  work_.notify_all();
  const bool done = progress_.wait_for(
      lock, limit, [&] { return stop_ || (finished_ >= offered && looks_ >= looks); });
  return !std::exchange(failed_, false) && done && finished_ >= offered;
}

bool SsdStore::close(std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  const bool durable = limit.count() > 0 && flush(limit);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    work_.notify_all();
    progress_.notify_all();
  }
  if (writer_.joinable()) writer_.join();
  if (reader_.joinable()) reader_.join();
  const std::lock_guard lock(mutex_);
  counts_.dropped += writes_.size();
  written_.splice(written_.end(), writes_);
  read_.splice(read_.end(), reads_);
  return durable;
}

SsdStats SsdStore::stats() const {
  const std::lock_guard lock(mutex_);
  SsdStats stats = counts_;
  stats.files = catalog_.size();
  stats.bytes = catalog_.bytes();
  stats.pending_writes = writes_.size();
  return stats;
}

void SsdStore::check_integrity(kv::BlockCensus& census) const {
  const std::lock_guard lock(mutex_);
  for (const auto* line : {&writes_, &written_}) {
    for (const Write& job : *line) {
      if (const auto* row = std::get_if<RowWrite>(&job.what)) row->row.check_integrity(census);
    }
  }
  for (const auto* line : {&reads_, &read_}) {
    for (const Read& job : *line) {
      if (const auto* row = std::get_if<RowRead>(&job.what)) row->row.check_integrity(census);
    }
  }
}

void SsdStore::write_loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (looks_ < looks_wanted_) {
      const uint64_t wanted = looks_wanted_;
      lock.unlock();
      attempt([&] { look_through(); }, [&](const std::exception& error) { complain(error); });
      lock.lock();
      looks_ = wanted;
      progress_.notify_all();
    } else if (!writes_.empty()) {
      const Write& job = writes_.front();
      lock.unlock();
      const bool durable = write(job);
      lock.lock();
      written_.splice(written_.end(), writes_, writes_.begin());
      ++finished_;
      failed_ = failed_ || !durable;
      progress_.notify_all();
      lock.unlock();
      options_.on_done();
      lock.lock();
    } else if (!work_.wait_for(lock, kLookEvery, [&] {
                 return stop_ || !writes_.empty() || looks_ < looks_wanted_;
               })) {
      ++looks_wanted_;
    }
  }
}

void SsdStore::read_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stop_ || !reads_.empty(); });
    if (stop_) return;
    Read& job = reads_.front();
    lock.unlock();
    fill(job);
    lock.lock();
    read_.splice(read_.end(), reads_, reads_.begin());
    lock.unlock();
    options_.on_done();
    lock.lock();
  }
}

bool SsdStore::has(const SavedPrefix& prefix) const {
  const auto there = catalog_.longest(prefix.space, prefix.ids);
  return there && there->tokens == static_cast<int64_t>(prefix.ids.size());
}

bool SsdStore::is_there(const Write& job) const {
  if (const auto* object = std::get_if<ObjectWrite>(&job.what)) {
    return catalog_.find_object(object->key).has_value();
  }
  const auto& row = std::get<RowWrite>(job.what);
  return row.answer.empty() && has(row.prefix);
}

std::list<SsdStore::Write>::iterator SsdStore::earlier(const Write& job) {
  const auto* row = std::get_if<RowWrite>(&job.what);
  if (row == nullptr || row->answer.empty() || writes_.empty()) return writes_.end();
  return std::find_if(std::next(writes_.begin()), writes_.end(), [&](const Write& waiting) {
    const auto* other = std::get_if<RowWrite>(&waiting.what);
    return other != nullptr && other->answer == row->answer;
  });
}

bool SsdStore::write(const Write& job) {
  const auto act = [&] {
    {
      const std::lock_guard lock(mutex_);  // an earlier one may have become durable meanwhile
      if (is_there(job)) return;
    }
    std::visit([&](const auto& what) { save(what); }, job.what);
  };
  return attempt(act, [&](const std::exception& error) {
    const bool dropped = kind_of(error) == ErrorKind::kOverloaded;
    {
      const std::lock_guard lock(mutex_);
      ++(dropped ? counts_.dropped : counts_.write_errors);
    }
    if (!dropped) complain(error);
  });
}

void SsdStore::save(const RowWrite& job) {
  std::vector<std::string> replaced;
  bool there = false;
  {
    const std::lock_guard lock(mutex_);
    there = !job.prefix.generation && has(job.prefix);
    if (there) replaced = catalog_.generation_files(job.answer);
  }
  if (!there) replaced = save_file(job);
  std::erase_if(replaced, [&](const std::string& name) { return !folder_.remove(name); });
  forget(replaced);
}

template <class Writer>
std::string SsdStore::make_file(const Writer& writer) {
  const uint64_t bytes = writer.bytes(), most = options_.most_bytes;
  if (most > 0) {
    if (bytes > most) fail(ErrorKind::kOverloaded, "larger than the cache");
    if (folder_bytes_ + bytes > most) {  // what others have added, the next look counts
      const auto [removed, left] = folder_.make_room(most - bytes);
      forget(removed);
      folder_bytes_ = left;
    }
    if (folder_bytes_ + bytes > most) {
      fail(ErrorKind::kOverloaded, "what is in the cache is in use");
    }
  }
  NewFile file = folder_.create(group_, bytes);
  writer.write([&](kv::Bytes piece) {
    if (stop_) fail(ErrorKind::kOverloaded, "the store is closed");
    file.write(piece);
  });
  file.publish();
  folder_bytes_ += bytes;
  return file.name();
}

std::vector<std::string> SsdStore::save_file(const RowWrite& job) {
  const kv::RowWriter writer(job.row, kv::kPaged, about_prefix(options_.identity, job.prefix));
  const std::string file = make_file(writer);
  index_.put(file, writer.bytes(), job.prefix);
  const std::lock_guard lock(mutex_);
  std::vector<std::string> replaced;
  if (!job.prefix.generation) replaced = catalog_.replaced_by(job.prefix);  // it will go itself
  std::ranges::copy(catalog_.generation_files(job.answer), std::back_inserter(replaced));
  catalog_.add(file, job.prefix, writer.bytes());
  ++counts_.written;
  counts_.written_bytes += writer.bytes();
  return replaced;
}

void SsdStore::save(const ObjectWrite& job) {
  const ObjectWriter writer(options_.identity, job.key, *job.object);
  const std::string file = make_file(writer);
  index_.put_object(file, writer.bytes(), job.key);
  const std::lock_guard lock(mutex_);
  catalog_.add_object(file, job.key, writer.bytes());
  ++counts_.written;
  counts_.written_bytes += writer.bytes();
}

void SsdStore::fill(Read& job) {
  const auto read = [&] {
    const FileLease lease = folder_.lease(job.file);
    kv::RecordReader record(lease.bytes(), [&](std::span<std::byte> into) {
      if (stop_) fail(ErrorKind::kNotFound, "the store is closed");
      lease.read(into);
    });
    if (!std::visit([&](auto& what) { return fill(what, record); }, job.what)) {
      const std::lock_guard lock(mutex_);
      doubtful_.push_back(job.file);
      fail(ErrorKind::kNotFound, "the index is wrong");
    }
    lease.touch();
  };
  attempt(read, [&](const std::exception& error) { lose(job.file, error); });
}

bool SsdStore::fill(RowRead& job, kv::RecordReader& record) {
  if (holds_object(record.head())) return false;
  const kv::RowHead head(record.head());
  const SavedPrefix prefix = prefix_of(head, options_.identity);
  const SavedPrefix& told = job.found.prefix;
  if (prefix.space != told.space || head.offset() != job.found.offset ||
      prefix.minimum_reusable_offset != told.minimum_reusable_offset ||
      !std::ranges::equal(std::span(prefix.ids).first(told.ids.size()), told.ids)) {
    return false;
  }
  head.fill(job.row, record);
  job.filled = true;
  return true;
}

bool SsdStore::fill(ObjectRead& job, kv::RecordReader& record) {
  if (!holds_object(record.head())) return false;
  if (key_of(record.head(), options_.identity) != job.key) return false;
  size_t bytes = 0;
  for (const kv::TensorSpec& tensor : record.head().tensors()) bytes += tensor.bytes();
  if (bytes > options_.most_pending_bytes) {
    fail(ErrorKind::kUnsupported, "a file has an object that is too large");
  }
  job.object = std::make_shared<const Object>(read_object(record));
  return true;
}

void SsdStore::look_through() {
  folder_.sweep();
  std::vector<std::string> doubtful;
  {
    const std::lock_guard lock(mutex_);
    doubtful.swap(doubtful_);
  }
  for (const std::string& name : doubtful) index_.erase(name);
  std::set<std::string> names;
  uint64_t bytes = 0;
  folder_bytes_ = options_.most_bytes;  // unless this ends well, who writes counts again
  for (const CachedFile& file : folder_.list()) {
    bytes += file.bytes;
    if (file.temporary) continue;
    names.insert(file.name);
    if (file.name.starts_with(group_) && !stop_) look_into(file);
  }
  folder_bytes_ = bytes;
  std::erase_if(idle_, [&](const std::string& name) { return !names.contains(name); });
  index_.keep(names);
  const std::lock_guard lock(mutex_);
  for (const std::string& name : catalog_.files()) {
    if (!names.contains(name)) catalog_.erase(name);
  }
}

void SsdStore::look_into(const CachedFile& file) {
  {
    const std::lock_guard lock(mutex_);
    if (catalog_.contains(file.name) || idle_.contains(file.name)) return;
  }
  std::optional<SavedPrefix> prefix = index_.find(file.name, file.bytes);
  std::optional<std::string> key;
  if (!prefix) key = index_.find_object(file.name, file.bytes);
  const auto read = [&] {
    const FileLease lease = folder_.lease(file.name);
    const kv::RecordReader record(lease.bytes(),
                                  [&](std::span<std::byte> into) { lease.read(into); });
    if (holds_object(record.head())) {
      key = key_of(record.head(), options_.identity);
      index_.put_object(file.name, file.bytes, *key);
    } else {
      prefix = prefix_of(kv::RowHead(record.head()), options_.identity);
      index_.put(file.name, file.bytes, *prefix);
    }
  };
  const auto failed = [&](const std::exception& error) {
    if (kind_of(error) != ErrorKind::kNotFound) idle_.insert(file.name);
    lose(file.name, error);
  };
  if (!prefix && !key && !attempt(read, failed)) return;
  const std::lock_guard lock(mutex_);
  if (prefix) {
    catalog_.add(file.name, *prefix, file.bytes);
  } else {
    catalog_.add_object(file.name, *key, file.bytes);
  }
  if (!catalog_.contains(file.name)) idle_.insert(file.name);
}

void SsdStore::lose(const std::string& file, const std::exception& error) {
  const ErrorKind kind = kind_of(error);
  if (kind == ErrorKind::kInvalidRequest) folder_.remove(file);
  {
    const std::lock_guard lock(mutex_);
    catalog_.erase(file);
    if (kind == ErrorKind::kNotFound) return;
    ++(kind == ErrorKind::kInvalidRequest ? counts_.damaged
       : kind == ErrorKind::kUnsupported  ? counts_.foreign
                                          : counts_.read_errors);
  }
  complain(error);
}

void SsdStore::forget(const std::vector<std::string>& removed) {
  for (const std::string& name : removed) index_.erase(name);
  const std::lock_guard lock(mutex_);
  for (const std::string& name : removed) catalog_.erase(name);
  counts_.removed += removed.size();
}

void SsdStore::complain(const std::exception& error) {
  // What a damaged file says may be part of somebody's text.
  const std::string text =
      kind_of(error) == ErrorKind::kInvalidRequest ? "a damaged file was removed" : error.what();
  {
    const std::lock_guard lock(mutex_);
    if (!said_.insert(text).second) return;
  }
  say("cohort: SSD cache: {}\n", text);
}

}  // namespace cohort::store
