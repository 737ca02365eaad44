#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace cohort::store {

/// Names what is kept for a sequence of tokens; never 0.
using EntryId = uint64_t;

/// Entries by the token ids they were kept for: a tree whose edges hold runs of ids. An entry of n
/// tokens can serve every prefix of them from its floor on: [floor, n].
///   thread  one at a time
class RadixTree {
 public:
  /// Where an entry is; stays valid until the entry is erased.
  struct Node;
  struct Match {
    EntryId entry = 0;
    int64_t tokens = 0;   // of the prefix that the entry can serve
    bool branch = false;  // the ids leave all others where two or more kept continuations part
  };

  RadixTree();
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  /// The longest prefix of `ids`, at least 1 token, that some entry can serve; an entry of exactly
  /// that prefix before others.
  ///   cost  ids, then entries below the match only as deep as the first that fits
  std::optional<Match> longest(std::span<const int32_t> ids) const;
  /// The entries of `ids` and of their prefixes, the longest first.
  std::vector<EntryId> on_path(std::span<const int32_t> ids) const;
  /// Keeps an entry for `ids`, not empty, which have none yet.
  ///   floor  at most ids.size()
  Node& insert(std::span<const int32_t> ids, EntryId entry, int64_t floor);
  void erase(Node& place);
  bool empty() const;

  /// Throws Error{kInternal} if the tree contradicts itself.
  ///   returns  how many tokens each entry is of
  std::map<EntryId, int64_t> check_integrity() const;

 private:
  struct Walk;
  Walk walk(std::span<const int32_t> ids) const;

  std::unique_ptr<Node> root_;
};

}  // namespace cohort::store
