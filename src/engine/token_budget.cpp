#include "engine/token_budget.h"

#include <algorithm>

namespace cohort::engine {
namespace {

constexpr double kAloneTarget = 0.25;  // s
constexpr double kStretch = 1.5;       // of a step without prompts, by default
constexpr int64_t kFirstAlone = 256;   // before anything is known of this model and machine
constexpr int64_t kFirstMixed = 4;
// A prompt must not stand still, and fewer tokens cost a forward hardly less (docs/performance.md).
constexpr int64_t kLeastAlone = 32;
constexpr int64_t kLeastMixed = 4;
constexpr int64_t kPaceHolds = 128;  // forwards with prompts after which a pace is measured anew

}  // namespace

void RecentMedian::add(double value) {
  values_[count_++ % values_.size()] = value;
}

double RecentMedian::median() const {
  auto sorted = values_;
  const auto end = sorted.begin() + static_cast<ptrdiff_t>(std::min(count_, sorted.size()));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

SchedulerLimits TokenBudget::limits(size_t decoding) const {
  return {.prefill_tokens = options_.alone_tokens > 0 ? options_.alone_tokens : alone(),
          .mixed_tokens = options_.mixed_tokens >= 0 ? options_.mixed_tokens : mixed(decoding)};
}

int64_t TokenBudget::alone() const {
  if (alone_token_s_.empty()) return std::min(kFirstAlone, options_.most_tokens);
  const double tokens = kAloneTarget / std::max(alone_token_s_.median(), 1e-9);
  return std::clamp(static_cast<int64_t>(std::min(tokens, 1e9)),
                    std::min(kLeastAlone, options_.most_tokens), options_.most_tokens);
}

int64_t TokenBudget::mixed(size_t decoding) const {
  const auto pace = paces_.find(decoding);
  // Unknown or old: this forward measures it.
  if (pace == paces_.end() || pace->second.mixed_since >= kPaceHolds) return 0;
  if (mixed_token_s_.empty()) return std::min(kFirstMixed, options_.most_tokens);
  const double step = pace->second.alone_s.median();
  const double target = options_.itl_target_s > 0 ? options_.itl_target_s : kStretch * step;
  // What was dear just now counts at once, what was cheap when it stays so.
  const double token = std::max(mixed_token_s_.median(), last_token_s_);
  const double tokens = (target - step) / std::max(token, 1e-9);
  const double growth = static_cast<double>(std::max(last_mixed_ * 5 / 4 + 1, kFirstMixed));
  constexpr double kRounding = 1e-6;
  return std::clamp(static_cast<int64_t>(std::clamp(tokens + kRounding, 0.0, growth)),
                    std::min(kLeastMixed, options_.most_tokens), options_.most_tokens);
}

void TokenBudget::observe(size_t decoding, int64_t prefilled, double seconds) {
  if (decoding == 0) {
    if (prefilled >= kLeastAlone) alone_token_s_.add(seconds / static_cast<double>(prefilled));
    return;
  }
  Pace& pace = paces_[decoding];
  if (prefilled == 0) {
    // What is slower than before may be another program's doing; what is faster is the truth.
    if (!pace.alone_s.empty() && seconds < pace.alone_s.median()) pace.alone_s = {};
    pace.alone_s.add(seconds);
    pace.mixed_since = 0;
    return;
  }
  ++pace.mixed_since;
  if (pace.alone_s.empty() || prefilled < kLeastMixed) return;
  last_mixed_ = prefilled;
  const double extra = seconds - pace.alone_s.median();
  if (extra > 0) {
    last_token_s_ = extra / static_cast<double>(prefilled);
    mixed_token_s_.add(last_token_s_);
  } else {
    pace = {};  // it was measured while others had the cores
  }
}

}  // namespace cohort::engine
