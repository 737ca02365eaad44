#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kv/row_cache.h"
#include "store/radix.h"
#include "store/retention.h"

namespace cohort::store {

/// What must be equal for a prefix to be usable, beside its tokens: made by the caller of model,
/// KV scheme, adapters, identity of media, salt.
using Namespace = std::string;

/// The fewest tokens that a cache can be cut to and still be of use.
int64_t floor_of(const kv::RowCache& cache);

/// The memory that caches hold, what they share counted once.
class HeldMemory {
 public:
  /// What knowing of one array takes.
  static constexpr size_t kArrayBytes = 64;

  ///   cost  arrays of the cache
  void add(const kv::RowCache& cache);
  void remove(const kv::RowCache& cache);
  size_t bytes() const { return bytes_; }
  bool operator==(const HeldMemory&) const = default;

 private:
  std::unordered_map<const std::byte*, uint32_t> holders_;  // caches, by the address of an array
  size_t bytes_ = 0;
};

struct PrefixHit {
  kv::RowCache cache;  // of the caller's own, at offset `tokens`
  int64_t tokens = 0;
};

struct PutOptions {
  /// The conversation, "" = none. Its latest two entries are kept longer.
  std::string_view session = {};
  /// Others are expected to begin like this, too: a system prompt.
  bool shared_hint = false;
};

struct PrefixCacheStats {
  size_t entries = 0;
  size_t bytes = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t hit_tokens = 0;
  uint64_t evictions = 0;
};

/// Snapshots of rows, so that a prompt which begins like an earlier one need not be computed again.
///
/// Its bytes are the memory that would be free if it held nothing and no row went on: blocks and
/// states count once, however many entries share them, beside what the entries take themselves.
///
/// Entries leave in the order of their latest use, but some count as used later than they were: a
/// session's latest entries by kSessionUses, shared prefixes by kSharedUses. So a crowd of single
/// prompts does not drive out a conversation, and what nobody comes back to still goes in the end.
/// Where memory for its books is short, take, put and evict_one throw, and clear() of all tenants
/// of the budget must follow.
///   thread  engine; the memory of the rows outlives it
class PrefixCache : public Retention::Tenant {
 public:
  /// Uses are takes and puts: two or three a request.
  static constexpr uint64_t kSessionUses = 128;
  static constexpr uint64_t kSharedUses = 512;

  using Tenant::Tenant;

  /// Finds the longest prefix of `ids` that is of use: 1 to ids.size() - 1 tokens, where some entry
  /// can be cut to that and is, there, what a row that stopped there would have. The entry stays; a
  /// change of precision that it owed, the hit owes. No block is taken until the hit is written to.
  ///   cost  ids, then blocks of the prefix
  std::optional<PrefixHit> take(const Namespace& space, std::span<const int32_t> ids);

  /// Keeps a snapshot, a clone that the caller made, for the ids up to its offset. It replaces the
  /// entry of the same ids, and those of their prefixes that it can be cut back to unless they are
  /// shared. What is larger than the budget is not kept, and a put drives out others only. A row
  /// is best put at the end of its prompt and at its own end: where the second can be cut back to
  /// the first it replaces it, and where it cannot, the next turn needs the first if the template
  /// changes the answer.
  ///   cost  blocks of the snapshot, then entries for each that must go
  void put(const Namespace& space, std::span<const int32_t> ids, kv::RowCache snapshot,
           const PutOptions& options = {});

  /// Frees the entry that is worth least.
  ///   returns  false if there is none
  bool evict_one() { return retention_.evict_one(*this); }
  void clear() noexcept;

  size_t bytes() const override { return held_.bytes() + own_bytes_; }
  PrefixCacheStats stats() const;
  /// Throws Error{kInternal} if the cache contradicts itself; counts its references to blocks.
  void check_integrity(kv::BlockCensus& census) const;

 private:
  using Trees = std::map<Namespace, RadixTree>;
  using SessionName = std::pair<Namespace, std::string>;
  struct Session {
    EntryId latest = 0;
    EntryId before = 0;
  };
  struct Entry {
    kv::RowCache cache;
    Trees::iterator home;
    RadixTree::Node* place = nullptr;
    std::string session;   // whose latest two it is one of, or ""
    size_t own_bytes = 0;  // beside what the cache holds
    bool shared = false;   // several continuations began with it
    uint64_t favour() const {
      return (session.empty() ? 0 : kSessionUses) + (shared ? kSharedUses : 0);
    }
  };

  /// Sees to it that what a third continuation began with outlives the others.
  void keep_shared(EntryId id, const Namespace& space, std::span<const int32_t> ids,
                   const kv::RowCache& cache);
  void remember(EntryId id, std::string_view name);
  void forget(EntryId id);
  void remove(EntryId id) override;
  /// Sees to it that the entry's favour counts.
  void favour(EntryId id) { retention_.favour(id, entries_.at(id).favour()); }

  std::map<EntryId, Entry> entries_;
  Trees trees_;  // none is empty
  std::map<SessionName, Session> sessions_;
  HeldMemory held_;
  size_t own_bytes_ = 0;     // of all entries
  PrefixCacheStats counts_;  // but entries, bytes and evictions
};

}  // namespace cohort::store
