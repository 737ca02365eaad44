#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "engine/scheduler.h"

namespace cohort::engine {

/// The median of the last few measurements: one that was disturbed does not count.
class RecentMedian {
 public:
  void add(double value);
  double median() const;
  bool empty() const { return count_ == 0; }

 private:
  std::array<double, 7> values_{};
  size_t count_ = 0;  // ever added
};

/// How many prompt tokens the next forward may take: as many as keep the answers that are being
/// decoded beside them at their pace, and arrivals and departures from waiting long when there
/// are none.
///   beside answers  a forward aims at `itl_target_s`; by default at 1.5 x what the same number of
///                   decoding rows take alone, which is measured, now and then by a forward of
///                   just them. What is left of the aim, divided by the cost of a prompt token
///                   as it was lately, is the budget.
///   alone           a forward aims at a quarter of a second
///   thread          engine
class TokenBudget {
 public:
  struct Options {
    double itl_target_s = 0;     // 0 = 1.5 x a step without prompts
    int64_t alone_tokens = 0;    // exactly this many when nothing is decoded; 0 = adapt
    int64_t mixed_tokens = -1;   // exactly this many beside answers; -1 = adapt
    int64_t most_tokens = 2048;  // of any forward that adapts
  };
  explicit TokenBudget(Options options) : options_(options) {}

  /// For a forward in which `decoding` rows decode.
  SchedulerLimits limits(size_t decoding) const;
  /// What a forward of `decoding` rows and `prefilled` prompt tokens took.
  void observe(size_t decoding, int64_t prefilled, double seconds);

 private:
  /// Forwards of one number of decoding rows.
  struct Pace {
    RecentMedian alone_s;
    int64_t mixed_since = 0;  // forwards with prompts since the last without
  };

  int64_t alone() const;
  int64_t mixed(size_t decoding) const;

  const Options options_;
  std::map<size_t, Pace> paces_;  // by decoding rows
  RecentMedian alone_token_s_;    // a prompt token, nothing decoded
  RecentMedian mixed_token_s_;    // a prompt token beside answers
  double last_token_s_ = 0;       // the last of these
  int64_t last_mixed_ = 0;        // tokens; a budget grows by at most a quarter of them
};

}  // namespace cohort::engine
