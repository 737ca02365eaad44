#include "engine/waiting_line.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace cohort::engine {
namespace {

// Answers are work, too: many short prompts must not pass for few tokens.
constexpr int64_t kLeastCost = 512;

int64_t cost(const Submission& submission) {
  const Request& request = submission.request;
  return std::max(kLeastCost, static_cast<int64_t>(request.prompt.size())) +
         (request.choices - 1) * kLeastCost;
}

/// What a request that waits for room is delayed by, too: how long answers take.
int64_t passing_cost(const Submission& submission) {
  return cost(submission) + std::min<int64_t>(submission.max_tokens, 1024);
}

/// Smaller goes first.
int urgency_of(const Submission& submission, Clock::time_point now) {
  const auto risen = static_cast<int>((now - submission.arrived) / WaitingLine::kAge);
  return std::max(0, static_cast<int>(submission.request.priority) - risen);
}

}  // namespace

void WaitingLine::push(Submission submission) {
  const std::string& client = submission.request.client;
  // In this order, so that a failure leaves no client that has requests but no turn.
  if (std::ranges::find(turns_, client) == turns_.end()) turns_.push_back(client);
  credit_.try_emplace(client, kQuantum);
  waiting_.push_back(std::move(submission));
}

std::vector<WaitingLine::Place> WaitingLine::heads(int urgency, Clock::time_point now) {
  std::vector<Place> heads;
  for (const std::string& client : turns_) {
    const auto head = std::ranges::find_if(waiting_, [&](const Submission& waiting) {
      return waiting.request.client == client && urgency_of(waiting, now) == urgency;
    });
    if (head != waiting_.end()) heads.push_back(head);
  }
  return heads;
}

const Submission* WaitingLine::next(Clock::time_point now) {
  if (waiting_.empty()) return nullptr;
  int urgency = INT32_MAX;
  for (const Submission& waiting : waiting_) {
    urgency = std::min(urgency, urgency_of(waiting, now));
  }
  if (next_ != waiting_.end() && urgency_of(*next_, now) == urgency) return &*next_;
  // Who cannot afford its request goes to the end, with a quantum for its next turn.
  std::vector<Place> ring = heads(urgency, now);
  while (true) {
    const Submission& head = *ring.front();
    int64_t& credit = credit_[head.request.client];
    if (credit >= cost(head)) break;
    credit += kQuantum;
    std::erase(turns_, head.request.client);
    turns_.push_back(head.request.client);
    std::rotate(ring.begin(), ring.begin() + 1, ring.end());
  }
  next_ = ring.front();
  return &*next_;
}

Submission WaitingLine::take() {
  check(next_ != waiting_.end(), "a request is taken after it was next");
  return take(std::exchange(next_, waiting_.end()));
}

std::optional<Submission> WaitingLine::take_passing(
    Clock::time_point now, const std::function<bool(const Submission&)>& fits) {
  check(next_ != waiting_.end(), "who passes passes the next");
  const int64_t left = passing_cost(*next_) - next_->passed;
  if (left < kLeastCost) return std::nullopt;
  std::map<std::string_view, size_t> turn_of;
  for (const std::string& client : turns_) turn_of.emplace(client, turn_of.size());
  std::vector<Place> others;
  const int urgency = urgency_of(*next_, now);
  for (auto place = waiting_.begin(); place != waiting_.end(); ++place) {
    if (place == next_ || passing_cost(*place) > left) continue;
    if (urgency_of(*place, now) == urgency) others.push_back(place);
  }
  std::ranges::stable_sort(others, {},
                           [&](Place place) { return turn_of.at(place->request.client); });
  const auto passing = std::ranges::find_if(others, [&](Place place) { return fits(*place); });
  if (passing == others.end()) return std::nullopt;
  next_->passed += passing_cost(**passing);
  return take(*passing);
}

Submission WaitingLine::take(Place place) {
  Submission taken = std::move(*place);
  waiting_.erase(place);
  credit_[taken.request.client] -= cost(taken);
  forget_absent_clients();
  return taken;
}

std::vector<Submission> WaitingLine::take_cancelled() {
  return take_if([](const Submission& submission) { return submission.stream->cancelled(); });
}

std::vector<Submission> WaitingLine::take_all() {
  return take_if([](const Submission&) { return true; });
}

std::vector<Submission> WaitingLine::take_if(bool (*gone)(const Submission&)) {
  std::vector<Submission> taken;
  for (auto place = waiting_.begin(); place != waiting_.end();) {
    if (!gone(*place)) {
      ++place;
      continue;
    }
    if (place == next_) next_ = waiting_.end();
    taken.push_back(std::move(*place));
    place = waiting_.erase(place);
  }
  if (!taken.empty()) forget_absent_clients();
  return taken;
}

/// Credit is for those who wait: it cannot be saved up.
void WaitingLine::forget_absent_clients() {
  std::erase_if(turns_, [&](const std::string& client) {
    const bool waits = std::ranges::any_of(
        waiting_, [&](const Submission& waiting) { return waiting.request.client == client; });
    if (!waits) credit_.erase(client);
    return !waits;
  });
}

}  // namespace cohort::engine
