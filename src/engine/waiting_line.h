#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/submission.h"

namespace cohort::engine {

/// Requests that are not rows yet, and whose turn is next.
///   classes   a higher priority goes first; who waits rises one class every 30 s, so none starves
///   clients   within a class, deficit round-robin: in its turn a client may start requests worth
///             2,048 prompt tokens, a short one and each further answer counting as 512, and
///             carries over what a long one needs more. A client with a hundred requests delays
///             another one's by one turn
///   requests  of one client, in order of arrival
///   room      while there is none for the request whose turn it is, others of its class may pass
///             it, in the order of turns, that together cost no more than itself; their answers
///             count up to 1,024 tokens
///   thread    engine
///   source    Shreedhar & Varghese 1995, "Efficient fair queuing using deficit round robin"
class WaitingLine {
 public:
  static constexpr std::chrono::seconds kAge{30};
  static constexpr int64_t kQuantum = 2048;

  void push(Submission submission);
  /// Whose turn it is; null if nobody waits. The same until the line changes or somebody ages.
  const Submission* next(Clock::time_point now);
  /// Takes next() out; it must not be null.
  Submission take();
  /// Takes out the first request that may pass next() and that `fits`; next() must not be null.
  std::optional<Submission> take_passing(Clock::time_point now,
                                         const std::function<bool(const Submission&)>& fits);
  /// Takes out the requests that nobody waits for any more.
  std::vector<Submission> take_cancelled();
  std::vector<Submission> take_all();

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }

 private:
  using Place = std::list<Submission>::iterator;

  Submission take(Place place);
  std::vector<Submission> take_if(bool (*gone)(const Submission&));
  /// The clients of a class in the order of their turns, with their first request of the class.
  std::vector<Place> heads(int urgency, Clock::time_point now);
  void forget_absent_clients();

  std::list<Submission> waiting_;          // in order of arrival
  std::deque<std::string> turns_;          // every client that waits, once; the first is next
  std::map<std::string, int64_t> credit_;  // tokens that a client may start
  Place next_ = waiting_.end();            // chosen; end() = not yet
};

}  // namespace cohort::engine
