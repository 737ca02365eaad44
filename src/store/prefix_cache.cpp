#include "store/prefix_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/kv_block.h"

namespace cohort::store {

using kernels::cpu::kBlockTokens;

namespace {

/// What an entry takes beside the state that its cache holds, rounded up.
size_t entry_bytes(const Namespace& space, const kv::RowCache& cache, std::string_view session) {
  constexpr size_t kEntryBytes = 1024;  // the entry, its nodes in tree and maps
  constexpr size_t kLayerBytes = 256;   // a layer's cache
  constexpr size_t kBlockBytes = 16;    // its lists of blocks
  const auto tokens = static_cast<size_t>(cache.offset());
  const auto blocks = static_cast<size_t>(kernels::cpu::blocks_for(cache.offset()));
  return kEntryBytes + 2 * (space.size() + session.size()) + tokens * sizeof(int32_t) +
         cache.layers() * (kLayerBytes + blocks * kBlockBytes);
}

template <class F>
void for_each_array(const kv::RowCache& cache, const F& act) {
  for (size_t i = 0; i < cache.layers(); ++i) {
    for (const auto& array : cache.layer(i).arrays()) {
      if (!array.empty()) act(array);
    }
  }
}

}  // namespace

int64_t floor_of(const kv::RowCache& cache) {
  return std::max(cache.trim_floor(), cache.minimum_reusable_offset());
}

void HeldMemory::add(const kv::RowCache& cache) {
  for_each_array(cache, [&](std::span<const std::byte> array) {
    if (++holders_[array.data()] == 1) bytes_ += array.size() + kArrayBytes;
  });
}

void HeldMemory::remove(const kv::RowCache& cache) {
  for_each_array(cache, [&](std::span<const std::byte> array) {
    const auto holder = holders_.find(array.data());
    check(holder != holders_.end(), "what is given back was held");
    if (--holder->second > 0) return;
    bytes_ -= array.size() + kArrayBytes;
    holders_.erase(holder);
  });
}

std::optional<PrefixHit> PrefixCache::take(const Namespace& space, std::span<const int32_t> ids) {
  retention_.begin_use();
  const auto home = trees_.find(space);
  // The last token is always computed: the next one is sampled from what it gives.
  const auto match = home == trees_.end() || ids.empty()
                         ? std::nullopt
                         : home->second.longest(ids.first(ids.size() - 1));
  if (!match) {
    ++counts_.misses;
    return std::nullopt;
  }
  Entry& entry = entries_.at(match->entry);
  PrefixHit hit{entry.cache.clone(), match->tokens};
  hit.cache.trim(hit.tokens);
  ++counts_.hits;
  counts_.hit_tokens += static_cast<uint64_t>(hit.tokens);
  // Whoever goes another way has no use for the entry's end; what is of use, the hit holds.
  if (hit.tokens == entry.cache.offset()) retention_.touch(match->entry);
  if (match->branch) keep_shared(match->entry, space, ids, hit.cache);
  return hit;
}

void PrefixCache::keep_shared(EntryId id, const Namespace& space, std::span<const int32_t> ids,
                              const kv::RowCache& cache) {
  if (Entry& entry = entries_.at(id); entry.cache.offset() == cache.offset()) {
    entry.shared = true;
    return favour(id);
  }
  // In whole blocks if it can be cut so: those cost nothing while the others hold them.
  const int64_t whole = cache.offset() / kBlockTokens * kBlockTokens;
  if (whole == 0) return;
  const int64_t tokens = whole < floor_of(cache) ? cache.offset() : whole;
  const auto path = trees_.at(space).on_path(ids.first(static_cast<size_t>(tokens)));
  if (!path.empty() && entries_.at(path.front()).cache.offset() == tokens) {
    entries_.at(path.front()).shared = true;
    retention_.touch(path.front());
    return favour(path.front());
  }
  kv::RowCache prefix = cache.clone();
  prefix.trim(tokens);
  put(space, ids, std::move(prefix), {.shared_hint = true});
}

void PrefixCache::put(const Namespace& space, std::span<const int32_t> ids, kv::RowCache snapshot,
                      const PutOptions& options) {
  retention_.begin_use();
  const int64_t tokens = snapshot.offset();
  check(tokens <= static_cast<int64_t>(ids.size()), "the tokens of a snapshot are known");
  const size_t own_bytes = entry_bytes(space, snapshot, options.session);
  size_t needed = own_bytes;
  for_each_array(snapshot, [&](auto array) { needed += array.size() + HeldMemory::kArrayBytes; });
  if (tokens == 0 || needed > retention_.budget_bytes()) return;
  ids = ids.first(static_cast<size_t>(tokens));
  const int64_t floor = floor_of(snapshot);
  bool shared = options.shared_hint;
  if (const auto home = trees_.find(space); home != trees_.end()) {
    for (const EntryId id : home->second.on_path(ids)) {
      const Entry& old = entries_.at(id);
      const bool same = old.cache.offset() == tokens;
      shared = shared || (same && old.shared);
      if (same || (!old.shared && old.cache.offset() >= floor)) remove(id);
    }
  }
  const auto home = trees_.try_emplace(space).first;
  const EntryId id = retention_.add(*this);
  RadixTree::Node* place = &home->second.insert(ids, id, floor);
  held_.add(snapshot);
  entries_.try_emplace(id, Entry{std::move(snapshot), home, place, {}, own_bytes, shared});
  own_bytes_ += own_bytes;
  if (!options.session.empty()) remember(id, options.session);
  favour(id);
  retention_.make_room(id);
}

void PrefixCache::remember(EntryId id, std::string_view name) {
  Entry& entry = entries_.at(id);
  entry.session = name;
  Session& session = sessions_[{entry.home->first, entry.session}];
  if (session.before != 0) {
    entries_.at(session.before).session.clear();
    favour(session.before);
  }
  session = {id, session.latest};
}

void PrefixCache::forget(EntryId id) {
  const Entry& entry = entries_.at(id);
  if (entry.session.empty()) return;
  const auto place = sessions_.find({entry.home->first, entry.session});
  Session& session = place->second;
  if (session.latest == id) session.latest = session.before;
  session.before = 0;
  if (session.latest == 0) sessions_.erase(place);
}

void PrefixCache::remove(EntryId id) {
  forget(id);
  const auto place = entries_.find(id);
  const Entry& entry = place->second;
  entry.home->second.erase(*entry.place);
  if (entry.home->second.empty()) trees_.erase(entry.home);
  held_.remove(entry.cache);
  own_bytes_ -= entry.own_bytes;
  entries_.erase(place);
  retention_.erase(id);
}

void PrefixCache::clear() noexcept {
  sessions_.clear();
  trees_.clear();
  entries_.clear();
  retention_.erase_all(*this);
  held_ = {};
  own_bytes_ = 0;
}

PrefixCacheStats PrefixCache::stats() const {
  PrefixCacheStats stats = counts_;
  stats.entries = entries_.size();
  stats.bytes = bytes();
  stats.evictions = evictions();
  return stats;
}

void PrefixCache::check_integrity(kv::BlockCensus& census) const {
  std::map<EntryId, int64_t> placed;
  for (const auto& [space, tree] : trees_) {
    check(!tree.empty(), "a namespace without entries is gone");
    for (const auto& [id, tokens] : tree.check_integrity()) {
      check(placed.emplace(id, tokens).second, "an entry has one place");
      check(entries_.at(id).home->first == space, "an entry is in its namespace");
    }
  }
  check(placed.size() == entries_.size(), "every entry has a place");
  HeldMemory held;
  size_t own_bytes = 0, claims = 0;
  for (const auto& [id, entry] : entries_) {
    check(entry.cache.offset() == placed.at(id), "an entry is of as many tokens as its place");
    check(retention_.uses().at(id).favour == entry.favour(), "what favours an entry counts");
    entry.cache.check_integrity(census);
    held.add(entry.cache);
    own_bytes += entry.own_bytes;
    claims += !entry.session.empty();
  }
  check(held == held_ && own_bytes == own_bytes_, "the bytes of the entries add up");
  const auto is_own = [&](const auto& use) { return use.second.owner == this; };
  check(static_cast<size_t>(std::ranges::count_if(retention_.uses(), is_own)) == entries_.size(),
        "what is used is there");
  retention_.check_integrity();
  for (const auto& [name, session] : sessions_) {
    check(session.latest != 0 && session.latest != session.before, "a session has entries");
    for (const EntryId id : {session.latest, session.before}) {
      if (id == 0) continue;
      const Entry& entry = entries_.at(id);
      check(name == SessionName(entry.home->first, entry.session), "an entry knows its session");
      --claims;
    }
  }
  check(claims == 0, "only a session's latest entries are its own");
}

}  // namespace cohort::store
