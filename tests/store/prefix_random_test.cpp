// Random prompts of random rows, against a list of entries that is searched from end to end.

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <set>

#include "store/prefix_cache.h"
#include "tests/store/prefix_rows.h"
#include "tests/support/rounds.h"

namespace cohort::store::test {
namespace {

using Arrays = std::map<const std::byte*, size_t>;

Arrays arrays_of(const kv::RowCache& row) {
  Arrays arrays;
  for (size_t i = 0; i < row.layers(); ++i) {
    for (const auto& array : row.layer(i).arrays()) {
      if (!array.empty()) arrays[array.data()] = array.size() + HeldMemory::kArrayBytes;
    }
  }
  return arrays;
}

size_t total(const Arrays& arrays) {
  size_t bytes = 0;
  for (const auto& [address, size] : arrays) bytes += size;
  return bytes;
}

int64_t common(const Ids& a, const Ids& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

/// What the header of the prefix cache says, done without an index.
class PlainList {
 public:
  explicit PlainList(size_t budget) : budget_(budget) {}

  /// What a take gives; `hit` is what the cache under test gave.
  int64_t take(const Namespace& space, Ids ids, const PrefixHit* hit) {
    ++clock_;
    if (!ids.empty()) ids.pop_back();
    int64_t most = 0, shared = 0;
    for (const Entry& entry : entries_) {
      if (entry.space != space) continue;
      const int64_t tokens = common(entry.ids, ids);
      shared = std::max(shared, tokens);
      if (tokens >= entry.floor) most = std::max(most, tokens);
    }
    if (most == 0 || hit == nullptr) return most;
    Entry* whole = find(space, first(ids, most));
    if (whole != nullptr) whole->last_used = clock_;
    if (branches(space, ids, shared)) keep_shared(space, ids, most, whole, *hit);
    return most;
  }

  void put(const Namespace& space, const Ids& ids, const kv::RowCache& row,
           const PutOptions& options) {
    ++clock_;
    PrefixCache alone(SIZE_MAX);
    alone.put(space, ids, row.clone(), options);
    const Arrays arrays = arrays_of(row);
    const size_t bytes = alone.stats().bytes;
    if (row.offset() == 0 || bytes > budget_) return;
    Entry made{space, first(ids, row.offset()),
               std::max(row.trim_floor(), row.minimum_reusable_offset())};
    made.session = options.session;
    made.shared = options.shared_hint;
    made.last_used = clock_;
    made.arrays = arrays;
    made.own_bytes = bytes - total(arrays);
    std::erase_if(entries_, [&](const Entry& old) {
      const auto size = static_cast<int64_t>(old.ids.size());
      if (old.space != space || common(old.ids, made.ids) < size) return false;
      if (old.ids == made.ids) made.shared = made.shared || old.shared;
      return old.ids == made.ids || (!old.shared && size >= made.floor);
    });
    entries_.push_back(made);
    if (!made.session.empty()) keep_two(space, made.session);
    while (this->bytes() > budget_ && evict(1)) {
    }
  }

  /// Drops the entry that is worth least, but for the latest `spared`.
  bool evict(size_t spared = 0) {
    if (entries_.size() <= spared) return false;
    const auto worth = [](const Entry& entry) {
      return entry.last_used + (entry.session.empty() ? 0 : PrefixCache::kSessionUses) +
             (entry.shared ? PrefixCache::kSharedUses : 0);
    };
    const auto end = std::prev(entries_.end(), static_cast<ptrdiff_t>(spared));
    entries_.erase(std::ranges::min_element(entries_.begin(), end, {}, worth));
    ++evictions_;
    return true;
  }

  void clear() { entries_.clear(); }
  size_t entries() const { return entries_.size(); }
  uint64_t evictions() const { return evictions_; }
  size_t bytes() const {
    Arrays held;
    size_t bytes = 0;
    for (const Entry& entry : entries_) {
      held.insert(entry.arrays.begin(), entry.arrays.end());
      bytes += entry.own_bytes;
    }
    return bytes + total(held);
  }

 private:
  struct Entry {
    Namespace space;
    Ids ids;
    int64_t floor = 0;
    std::string session = {};
    bool shared = false;
    uint64_t last_used = 0;
    Arrays arrays = {};
    size_t own_bytes = 0;
  };

  Entry* find(const Namespace& space, const Ids& ids) {
    for (Entry& entry : entries_) {
      if (entry.space == space && entry.ids == ids) return &entry;
    }
    return nullptr;
  }

  bool branches(const Namespace& space, const Ids& ids, int64_t shared) const {
    const auto at = static_cast<size_t>(shared);
    std::set<int32_t> next;
    for (const Entry& entry : entries_) {
      if (entry.space == space && common(entry.ids, ids) == shared && entry.ids.size() > at) {
        next.insert(entry.ids[at]);
      }
    }
    return ids.size() > at && next.size() > 1;
  }

  void keep_shared(const Namespace& space, const Ids& ids, int64_t tokens, Entry* whole,
                   const PrefixHit& hit) {
    if (whole != nullptr) {
      whole->shared = true;
      return;
    }
    if (tokens < 64) return;
    int64_t kept = tokens / 64 * 64;
    if (kept < hit.cache.trim_floor() || kept < hit.cache.minimum_reusable_offset()) kept = tokens;
    if (Entry* there = find(space, first(ids, kept))) {
      there->shared = true;
      there->last_used = clock_;
      return;
    }
    kv::RowCache prefix = hit.cache.clone();
    prefix.trim(kept);
    put(space, ids, prefix, {.shared_hint = true});
  }

  void keep_two(const Namespace& space, const std::string& session) {
    int found = 0;
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
      if (entry->space != space || entry->session != session) continue;
      if (++found > 2) entry->session.clear();
    }
  }

  const size_t budget_;
  std::list<Entry> entries_;  // in the order of puts
  uint64_t clock_ = 0;
  uint64_t evictions_ = 0;
};

/// Prompts as they come: most go on where an earlier one was.
struct Prompts {
  std::mt19937 random;
  std::vector<std::pair<Namespace, Ids>> earlier = {};

  size_t below(size_t end) { return random() % end; }
  std::pair<Namespace, Ids> next() {
    Namespace space = below(4) == 0 ? "other" : "model";
    Ids ids;
    if (!earlier.empty() && below(8) != 0) {
      const auto& [of, before] = earlier[earlier.size() - 1 - below(earlier.size())];
      const size_t kept = below(3) == 0 ? below(before.size() + 1) : before.size();
      ids = first(before, static_cast<int64_t>(kept));
      if (below(10) != 0) space = of;
    }
    if (ids.size() < 260) {
      for (size_t more = below(4) == 0 ? below(4) : below(90); more > 0; --more) {
        ids.push_back(static_cast<int32_t>(below(3)));
      }
    }
    earlier.emplace_back(space, ids);
    if (earlier.size() > 16) earlier.erase(earlier.begin() + static_cast<ptrdiff_t>(below(16)));
    return {space, ids};
  }
};

/// An engine in small that does at random what engines do.
struct Engine {
  PrefixModel model;
  size_t budget;
  PrefixCache cache;
  PlainList plain;
  Prompts prompts;
  std::list<kv::RowCache> rows = {};  // that still run

  Engine(const Layers& layers, size_t budget_bytes, uint32_t seed)
      : model(layers),
        budget(budget_bytes),
        cache(budget),
        plain(budget),
        prompts{std::mt19937(seed)} {}

  void step() {
    const size_t what = prompts.below(100);
    if (what < 8) {
      EXPECT_EQ(cache.evict_one(), plain.evict());
    } else if (what == 8) {
      if (prompts.below(5) != 0) return;
      cache.clear();
      plain.clear();
    } else {
      request(what < 20);
    }
    while (rows.size() > prompts.below(5)) rows.pop_front();
  }

  void request(bool leaves) {
    const auto [space, ids] = prompts.next();
    auto hit = cache.take(space, ids);
    const int64_t wanted = plain.take(space, ids, hit ? &*hit : nullptr);
    ASSERT_EQ(hit ? hit->tokens : 0, wanted);
    if (hit && prompts.below(4) == 0) {
      ASSERT_EQ(image(hit->cache), image(model.row_of(first(ids, wanted))));
    }
    rows.push_back(hit ? std::move(hit->cache) : model.row());
    if (leaves) return;
    const std::string session = prompts.below(2) == 0 ? "" : "s" + std::to_string(prompts.below(4));
    if (prompts.below(2) == 0) {
      const auto boundary = static_cast<int64_t>(prompts.below(ids.size() + 1));
      model.feed(rows.back(), first(ids, boundary));
      put(space, ids, {session, prompts.below(6) == 0});
    }
    model.feed(rows.back(), ids);
    put(space, ids, {session});
  }

  void put(const Namespace& space, const Ids& ids, const PutOptions& options) {
    cache.put(space, ids, rows.back().clone(), options);
    plain.put(space, ids, rows.back(), options);
  }

  void check() {
    const PrefixCacheStats stats = cache.stats();
    ASSERT_EQ(stats.entries, plain.entries());
    ASSERT_EQ(stats.bytes, plain.bytes());
    ASSERT_EQ(stats.evictions, plain.evictions());
    ASSERT_LE(stats.bytes, budget);
    kv::BlockCensus census;
    cache.check_integrity(census);
    for (const kv::RowCache& row : rows) row.check_integrity(census);
    model.memory.pools().check_integrity(census);
  }
};

TEST(PrefixRandom, ServesWhatASearchThroughAllEntriesFinds) {
  uint32_t seed = 0;
  for (uint32_t round = 0; round < cohort::test::rounds(); ++round) {
    for (const auto& [name, layers] : models()) {
      for (const size_t budget : {40'000, 150'000, 600'000}) {
        SCOPED_TRACE(name + " " + std::to_string(budget) + " seed " + std::to_string(seed));
        Engine engine(layers, budget, ++seed);
        for (int step = 0; step < 300; ++step) {
          engine.step();
          if (!testing::Test::HasFatalFailure()) engine.check();
          if (testing::Test::HasFatalFailure()) return;
        }
        const PrefixCacheStats stats = engine.cache.stats();
        EXPECT_GT(stats.hits, 5U);
        EXPECT_GT(stats.evictions, 10U);
        engine.rows.clear();
        engine.cache.clear();
        EXPECT_EQ(engine.model.used_bytes(), 0U);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::store::test
