// The tree of token sequences, against a list that is searched from end to end.

#include "store/radix.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "tests/support/rounds.h"

namespace cohort::store::test {
namespace {

using Ids = std::vector<int32_t>;

struct Kept {
  Ids ids;
  int64_t floor = 0;
  RadixTree::Node* place = nullptr;
};

int64_t common(const Ids& a, const Ids& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

int64_t longest(const std::map<EntryId, Kept>& kept, const Ids& ids) {
  int64_t most = 0;
  for (const auto& [id, entry] : kept) {
    const int64_t tokens = common(entry.ids, ids);
    if (tokens >= entry.floor) most = std::max(most, tokens);
  }
  return most;
}

/// Whether `ids` leave all entries where two of them part.
bool branches(const std::map<EntryId, Kept>& kept, const Ids& ids) {
  int64_t shared = 0;
  for (const auto& [id, entry] : kept) shared = std::max(shared, common(entry.ids, ids));
  std::map<int32_t, int> next;
  for (const auto& [id, entry] : kept) {
    const auto at = static_cast<size_t>(shared);
    if (common(entry.ids, ids) == shared && entry.ids.size() > at) ++next[entry.ids[at]];
  }
  return shared < static_cast<int64_t>(ids.size()) && next.size() > 1;
}

Ids random_ids(std::mt19937& random) {
  Ids ids(1 + random() % 12);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 4 == 0 ? 2 : 1);
  return ids;
}

void expect_match(const RadixTree& tree, const std::map<EntryId, Kept>& kept, const Ids& ids) {
  const auto match = tree.longest(ids);
  ASSERT_EQ(match ? match->tokens : 0, longest(kept, ids));
  if (!match) return;
  const Kept& entry = kept.at(match->entry);
  EXPECT_GE(common(entry.ids, ids), match->tokens);
  EXPECT_LE(entry.floor, match->tokens);
  EXPECT_EQ(match->branch, branches(kept, ids));
  for (const auto& [id, other] : kept) {
    const bool exact = static_cast<int64_t>(other.ids.size()) == match->tokens &&
                       common(other.ids, ids) == match->tokens;
    EXPECT_TRUE(!exact || match->entry == id);
  }
}

TEST(RadixTree, FindsWhatASearchThroughAllFinds) {
  std::mt19937 random(1);
  for (uint32_t round = 0; round < 20 * cohort::test::rounds(); ++round) {
    RadixTree tree;
    std::map<EntryId, Kept> kept;
    EntryId last = 0;
    for (int step = 0; step < 300; ++step) {
      const Ids ids = random_ids(random);
      std::vector<EntryId> path;
      for (const auto& [id, entry] : kept) {
        if (common(entry.ids, ids) == static_cast<int64_t>(entry.ids.size())) path.push_back(id);
      }
      std::ranges::sort(path, std::greater(), [&](EntryId id) { return kept[id].ids.size(); });
      ASSERT_EQ(tree.on_path(ids), path);
      const bool taken = !path.empty() && kept[path.front()].ids == ids;
      if (taken && random() % 2 == 0) {
        tree.erase(*kept[path.front()].place);
        kept.erase(path.front());
      } else if (!taken && kept.size() < 40) {
        const auto tokens = static_cast<int64_t>(ids.size());
        const int64_t floor = random() % 2 == 0 ? tokens : static_cast<int64_t>(random() % 5);
        Kept& entry = kept[++last] = {ids, std::min(floor, tokens)};
        entry.place = &tree.insert(ids, last, entry.floor);
      }
      expect_match(tree, kept, random_ids(random));
      std::map<EntryId, int64_t> sizes;
      for (const auto& [id, entry] : kept) sizes[id] = static_cast<int64_t>(entry.ids.size());
      ASSERT_EQ(tree.check_integrity(), sizes);
      ASSERT_EQ(tree.empty(), kept.empty());
    }
  }
}

TEST(RadixTree, NothingIsFoundInAnEmptyTreeOrForNoTokens) {
  RadixTree tree;
  EXPECT_FALSE(tree.longest(Ids{}));
  EXPECT_FALSE(tree.longest(Ids{1, 2}));
  tree.insert(Ids{1}, 1, 0);
  EXPECT_FALSE(tree.longest(Ids{}));
  EXPECT_TRUE(tree.on_path(Ids{}).empty());
}

TEST(RadixTree, ASequenceHasOneEntryOfTokensThatItCanServe) {
  RadixTree tree;
  tree.insert(Ids{1, 2}, 1, 0);
  EXPECT_THROW(tree.insert(Ids{1, 2}, 2, 0), Error);
  EXPECT_THROW(tree.insert(Ids{}, 2, 0), Error);
  EXPECT_THROW(tree.insert(Ids{3}, 2, 2), Error);
  EXPECT_THROW(tree.insert(Ids{3}, 0, 0), Error);
  EXPECT_EQ(tree.check_integrity().size(), 1U);
}

TEST(RadixTree, EveryPrefixOfASequenceMayHaveAnEntry) {
  const Ids ids(4000, 7);
  RadixTree tree;
  for (size_t n = 1; n <= ids.size(); ++n) tree.insert(std::span(ids).first(n), n, 0);
  EXPECT_EQ(tree.on_path(ids).size(), ids.size());
  EXPECT_EQ(tree.check_integrity().size(), ids.size());
}

}  // namespace
}  // namespace cohort::store::test
