#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace cohort::engine {
namespace {

/// The `count` largest of the finite logits, in the field of their logprobs.
std::vector<TokenLogprob> likeliest(std::span<const float> logits, size_t count) {
  std::vector<TokenLogprob> best;
  best.reserve(count + 1);
  for (size_t id = 0; id < logits.size(); ++id) {
    const float logit = logits[id];
    if (!std::isfinite(logit)) continue;
    if (best.size() == count && logit <= best.back().logprob) continue;
    // Behind its equals, which have lower ids.
    best.insert(std::ranges::upper_bound(best, logit, std::greater(), &TokenLogprob::logprob),
                {static_cast<int32_t>(id), logit});
    if (best.size() > count) best.pop_back();
  }
  return best;
}

/// Of the sum of exp(logit - largest), added in the order of the ids.
double log_total(std::span<const float> logits, float largest,
                 const kernels::cpu::Kernels& kernels) {
  constexpr size_t kPiece = 1024;
  float weights[kPiece];
  double total = 0;
  while (!logits.empty()) {
    const std::span<const float> piece = logits.first(std::min(kPiece, logits.size()));
    kernels.exp_shifted(piece.data(), largest, 1, static_cast<int64_t>(piece.size()), weights);
    for (size_t i = 0; i < piece.size(); ++i) total += std::isfinite(piece[i]) ? weights[i] : 0;
    logits = logits.subspan(piece.size());
  }
  return std::log(total);
}

}  // namespace

ScoredToken score(std::span<const float> logits, int32_t token, int top,
                  const kernels::cpu::Kernels& kernels) {
  check(token >= 0 && static_cast<size_t>(token) < logits.size(),
        "a token with a score has a logit");
  const auto wanted = static_cast<size_t>(std::max(top, 0));
  // The largest logit is needed even if nobody wants to see it.
  std::vector<TokenLogprob> best = likeliest(logits, std::max(wanted, size_t{1}));
  ScoredToken scored{.token = {.id = token, .logprob = kLeastLogprob}, .top = {}};
  if (best.empty()) return scored;
  const float largest = best.front().logprob;
  const double total = log_total(logits, largest, kernels);
  const auto logprob = [&](float logit) {
    const double exact = double{logit} - double{largest} - total;
    return static_cast<float>(std::max(exact, double{kLeastLogprob}));
  };
  const float logit = logits[static_cast<size_t>(token)];
  if (std::isfinite(logit)) scored.token.logprob = logprob(logit);
  best.resize(std::min(wanted, best.size()));
  for (TokenLogprob& entry : best) entry.logprob = logprob(entry.logprob);
  scored.top = std::move(best);
  return scored;
}

}  // namespace cohort::engine
