#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::text {

/// Finds the first stop string in text that arrives in pieces, and never lets out text that could
/// still become part of one. The first is the one that ends first; of several that end at the same
/// byte, the longest, which starts first. Nothing of it is emitted, nor what follows.
///   thread  one
///   cost    construction: the bytes of the stop strings; push: linear in the text, however many
///   source  Aho & Corasick 1975, "Efficient string matching"
class StopMatcher {
 public:
  ///   stop_strings  UTF-8, none empty; the list may be
  ///   throws        Error{kInvalidRequest} (param "stop") for an empty string
  explicit StopMatcher(const std::vector<std::string>& stop_strings);

  /// Takes whole UTF-8 characters and returns the text that is now safe to emit, in whole
  /// characters: everything but the longest end that begins a stop string. Empty once stopped.
  std::string push(std::string_view text);
  /// Whether a stop string is complete. The text before it has been returned.
  bool stopped() const { return stopped_; }
  /// Which one, as an index into the stop strings; -1 while not stopped.
  int stop_index() const { return stop_index_; }
  /// What is held back, when the text ends without a stop string. Starts a new text.
  std::string finish();

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> next;  // few children each: a scan beats a table
    int32_t fallback = 0;  // node of the longest proper end of this one's text
    int32_t depth = 0;     // bytes of its text
    int32_t stop = -1;     // longest stop string that ends here, or -1
  };

  int32_t child(int32_t node, uint8_t byte) const;
  void add(const std::string& stop_string, int32_t index);
  void link();

  std::vector<Node> nodes_{Node{}};  // 0 is the root, the empty text
  std::vector<size_t> sizes_;        // of the stop strings, bytes
  int32_t state_ = 0;
  std::string held_;  // the text of state_: the end of the input that may begin a stop string
  bool stopped_ = false;
  int stop_index_ = -1;
};

}  // namespace cohort::text
