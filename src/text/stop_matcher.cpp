#include "text/stop_matcher.h"

#include <utility>

#include "base/error.h"

namespace cohort::text {

StopMatcher::StopMatcher(const std::vector<std::string>& stop_strings) {
  for (const std::string& stop_string : stop_strings) {
    if (stop_string.empty()) {
      throw Error(ErrorKind::kInvalidRequest, "a stop string must not be empty", "stop");
    }
    add(stop_string, static_cast<int32_t>(sizes_.size()));
    sizes_.push_back(stop_string.size());
  }
  link();
}

int32_t StopMatcher::child(int32_t node, uint8_t byte) const {
  for (const auto& [label, target] : nodes_[node].next) {
    if (label == byte) return target;
  }
  return -1;
}

void StopMatcher::add(const std::string& stop_string, int32_t index) {
  int32_t node = 0;
  for (const char c : stop_string) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t target = child(node, byte);
    if (target < 0) {
      target = static_cast<int32_t>(nodes_.size());
      nodes_[node].next.emplace_back(byte, target);
      const int32_t depth = nodes_[node].depth + 1;
      nodes_.emplace_back().depth = depth;
    }
    node = target;
  }
  if (nodes_[node].stop < 0) nodes_[node].stop = index;
}

// Breadth first, so that a fallback, being shorter, is complete before it is used.
void StopMatcher::link() {
  std::vector<int32_t> queue;
  for (const auto& [byte, target] : nodes_[0].next) queue.push_back(target);
  for (size_t at = 0; at < queue.size(); ++at) {
    const int32_t node = queue[at];
    for (const auto& [byte, target] : nodes_[node].next) {
      int32_t fallback = nodes_[node].fallback;
      while (fallback != 0 && child(fallback, byte) < 0) fallback = nodes_[fallback].fallback;
      const int32_t found = child(fallback, byte);
      nodes_[target].fallback = found < 0 ? 0 : found;
      if (nodes_[target].stop < 0) nodes_[target].stop = nodes_[nodes_[target].fallback].stop;
      queue.push_back(target);
    }
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    int32_t target = child(state_, byte);
    while (target < 0 && state_ != 0) {
      state_ = nodes_[state_].fallback;
      target = child(state_, byte);
    }
    state_ = target < 0 ? 0 : target;
    if (nodes_[state_].stop < 0) continue;
    stopped_ = true;
    stop_index_ = nodes_[state_].stop;
    held_.append(text.substr(0, at + 1));
    held_.resize(held_.size() - sizes_[stop_index_]);
    return std::exchange(held_, {});
  }
  held_.append(text);
  const size_t safe = held_.size() - static_cast<size_t>(nodes_[state_].depth);
  std::string emitted = held_.substr(0, safe);
  held_.erase(0, safe);
  return emitted;
}

std::string StopMatcher::finish() {
  state_ = 0;
  stopped_ = false;
  stop_index_ = -1;
  return std::exchange(held_, {});
}

}  // namespace cohort::text
