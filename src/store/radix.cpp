#include "store/radix.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace cohort::store {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

struct RadixTree::Node {
  Node* parent = nullptr;    // null of the root only
  std::vector<int32_t> run;  // from the parent to here; empty at the root only
  int64_t depth = 0;         // tokens from the root to here
  EntryId entry = 0;         // 0 = none: two or more continuations part here
  int64_t entry_floor = kNever;
  int64_t least_floor = kNever;                       // of all entries here and below
  std::map<int32_t, std::unique_ptr<Node>> children;  // by the first id of their run

  bool splices() const { return parent != nullptr && entry == 0 && children.size() == 1; }
  /// Works out the least floor, here and above as far as it changes.
  void update_floors() {
    for (Node* node = this; node != nullptr; node = node->parent) {
      int64_t least = node->entry_floor;
      for (const auto& [id, child] : node->children) least = std::min(least, child->least_floor);
      if (std::exchange(node->least_floor, least) == least) return;
    }
  }
};

/// How far a sequence leads.
struct RadixTree::Walk {
  Node* last = nullptr;    // that was reached
  Node* inside = nullptr;  // the child in whose run the walk ended, if it did
  int64_t tokens = 0;      // of the sequence that lie in the tree
};

namespace {

using Node = RadixTree::Node;

/// Puts a node into the middle of the run that leads to `lower`, which stays where it is.
Node& split(Node& lower, int64_t depth) {
  const auto kept = static_cast<ptrdiff_t>(depth - lower.parent->depth);
  auto upper = std::make_unique<Node>();
  upper->parent = lower.parent;
  upper->run.assign(lower.run.begin(), lower.run.begin() + kept);
  upper->depth = depth;
  std::vector<int32_t> rest(lower.run.begin() + kept, lower.run.end());
  std::unique_ptr<Node>& slot = lower.parent->children.at(lower.run.front());
  std::unique_ptr<Node>& below = upper->children[rest.front()];
  below = std::exchange(slot, std::move(upper));
  lower.parent = slot.get();
  lower.run = std::move(rest);
  return *lower.parent;
}

/// Takes out a node without an entry and with one child.
void splice(Node& node) {
  std::unique_ptr<Node> child = std::move(node.children.begin()->second);
  child->run.insert(child->run.begin(), node.run.begin(), node.run.end());
  child->parent = node.parent;
  node.parent->children.at(node.run.front()) = std::move(child);
}

/// An entry at or below `node` that can serve the first `tokens`; there must be one.
EntryId entry_for(const Node& node, int64_t tokens) {
  const Node* at = &node;
  while (at->entry_floor > tokens) {
    const auto next = std::ranges::find_if(
        at->children, [&](const auto& child) { return child.second->least_floor <= tokens; });
    check(next != at->children.end(), "the least floor is that of an entry");
    at = next->second.get();
  }
  return at->entry;
}

void check_node(const Node& node) {
  const Node* parent = node.parent;
  check((parent == nullptr) == node.run.empty(), "every edge has a run");
  check(node.depth == static_cast<int64_t>(node.run.size()) + (parent ? parent->depth : 0),
        "a node is as deep as its runs are long");
  check((node.entry == 0) == (node.entry_floor == kNever), "entries have floors");
  check(node.entry == 0 || node.entry_floor <= node.depth, "an entry serves its own tokens");
  check(parent == nullptr || node.entry != 0 || node.children.size() > 1, "no node is idle");
  int64_t least = node.entry_floor;
  for (const auto& [id, child] : node.children) {
    check(child->parent == &node && !child->run.empty() && child->run.front() == id,
          "children know their place");
    least = std::min(least, child->least_floor);
  }
  check(node.least_floor == least, "the least floor is that of an entry");
}

}  // namespace

RadixTree::RadixTree() : root_(std::make_unique<Node>()) {}

RadixTree::~RadixTree() {
  // One node after the other: a chain of them may be longer than the stack is deep.
  std::vector<std::unique_ptr<Node>> left;
  left.push_back(std::move(root_));
  while (!left.empty()) {
    const std::unique_ptr<Node> node = std::move(left.back());
    left.pop_back();
    for (auto& [id, child] : node->children) left.push_back(std::move(child));
  }
}

bool RadixTree::empty() const {
  return root_->children.empty();
}

RadixTree::Walk RadixTree::walk(std::span<const int32_t> ids) const {
  Walk walk{root_.get()};
  while (!ids.empty()) {
    const auto next = walk.last->children.find(ids.front());
    if (next == walk.last->children.end()) break;
    const std::vector<int32_t>& run = next->second->run;
    const auto common = std::ranges::mismatch(run, ids).in1 - run.begin();
    walk.tokens += common;
    ids = ids.subspan(static_cast<size_t>(common));
    if (common < static_cast<ptrdiff_t>(run.size())) {
      walk.inside = next->second.get();
      break;
    }
    walk.last = next->second.get();
  }
  return walk;
}

std::optional<RadixTree::Match> RadixTree::longest(std::span<const int32_t> ids) const {
  const Walk walk = this->walk(ids);
  const bool branch = walk.inside == nullptr && walk.last->children.size() > 1 &&
                      walk.tokens < static_cast<int64_t>(ids.size());
  if (walk.inside != nullptr && walk.inside->least_floor <= walk.tokens) {
    return Match{entry_for(*walk.inside, walk.tokens), walk.tokens, branch};
  }
  for (const Node* node = walk.last; node->parent != nullptr; node = node->parent) {
    if (node->least_floor <= node->depth) {
      return Match{entry_for(*node, node->depth), node->depth, branch};
    }
  }
  return std::nullopt;
}

std::vector<EntryId> RadixTree::on_path(std::span<const int32_t> ids) const {
  std::vector<EntryId> found;
  for (const Node* node = walk(ids).last; node != nullptr; node = node->parent) {
    if (node->entry != 0) found.push_back(node->entry);
  }
  return found;
}

RadixTree::Node& RadixTree::insert(std::span<const int32_t> ids, EntryId entry, int64_t floor) {
  const auto tokens = static_cast<int64_t>(ids.size());
  check(entry != 0 && floor <= tokens && tokens > 0, "an entry is of tokens that it can serve");
  const Walk walk = this->walk(ids);
  Node* place = walk.inside != nullptr ? &split(*walk.inside, walk.tokens) : walk.last;
  if (walk.tokens < tokens) {
    const auto rest = ids.subspan(static_cast<size_t>(walk.tokens));
    auto leaf = std::make_unique<Node>();
    leaf->parent = place;
    leaf->run.assign(rest.begin(), rest.end());
    leaf->depth = tokens;
    place = (place->children[rest.front()] = std::move(leaf)).get();
  }
  check(place->entry == 0, "a sequence has one entry");
  place->entry = entry;
  place->entry_floor = floor;
  place->update_floors();
  return *place;
}

void RadixTree::erase(Node& place) {
  check(place.entry != 0, "an entry is erased once");
  place.entry = 0;
  place.entry_floor = kNever;
  Node* parent = place.parent;
  if (place.children.empty()) {
    const int32_t first = place.run.front();
    parent->children.erase(first);
  } else if (place.splices()) {
    splice(place);
  } else {
    parent = &place;
  }
  parent->update_floors();
  if (parent->splices()) splice(*parent);
}

std::map<EntryId, int64_t> RadixTree::check_integrity() const {
  std::map<EntryId, int64_t> entries;
  std::vector<const Node*> left{root_.get()};
  while (!left.empty()) {
    const Node* node = left.back();
    left.pop_back();
    check_node(*node);
    if (node->entry != 0) {
      check(entries.emplace(node->entry, node->depth).second, "an entry has one place");
    }
    for (const auto& [id, child] : node->children) left.push_back(child.get());
  }
  return entries;
}

}  // namespace cohort::store
