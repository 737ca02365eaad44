#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace cohort::engine {
namespace {

constexpr float kGreedyBelow = 1e-5f;

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

double uniform_at(uint64_t seed, int64_t position) {
  const uint64_t bits = mix(mix(seed) ^ mix(~static_cast<uint64_t>(position)));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Sampler::Sampler(SamplingParams params, std::span<const int32_t> prompt,
                 const kernels::cpu::Kernels& kernels)
    : params_(std::move(params)), kernels_(kernels) {
  if (params_.repetition_penalty == 1) return;
  prompt_ids_.assign(prompt.begin(), prompt.end());
  std::sort(prompt_ids_.begin(), prompt_ids_.end());
  prompt_ids_.erase(std::unique(prompt_ids_.begin(), prompt_ids_.end()), prompt_ids_.end());
}

void Sampler::accept(int32_t id) {
  if (params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
      params_.frequency_penalty != 0) {
    ++answered_[id];
  }
}

void Sampler::adjust(std::span<float> logits) const {
  for (const auto& [id, bias] : params_.logit_bias) logits[static_cast<size_t>(id)] += bias;
  const auto repeat = [&](int32_t id) {
    float& logit = logits[static_cast<size_t>(id)];
    // A tiny penalty must not make a logit infinite: that would look like a broken model.
    logit = logit < 0
                ? logit * params_.repetition_penalty
                : std::min(logit / params_.repetition_penalty, std::numeric_limits<float>::max());
  };
  if (params_.repetition_penalty != 1) {
    for (int32_t id : prompt_ids_) repeat(id);
  }
  for (const auto& [id, count] : answered_) {
    if (params_.repetition_penalty != 1 &&
        !std::binary_search(prompt_ids_.begin(), prompt_ids_.end(), id)) {
      repeat(id);
    }
    logits[static_cast<size_t>(id)] -=
        params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count);
  }
}

int32_t Sampler::sample(std::span<float> logits, int64_t position) {
  adjust(logits);
  const int64_t best = kernels_.argmax(logits.data(), static_cast<int64_t>(logits.size()));
  const float top = logits[static_cast<size_t>(best)];
  if (!std::isfinite(top)) {
    fail(ErrorKind::kModelFailure,
         "the model produced no finite logits: its weights may be damaged");
  }
  if (params_.temperature < kGreedyBelow) return static_cast<int32_t>(best);
  const double uniform = uniform_at(params_.seed, position);
  const bool filtered = params_.top_p < 1 || params_.min_p > 0 || params_.top_k > 0;
  return filtered ? draw_from_kept(logits, top, uniform) : draw_from_all(logits, top, uniform);
}

int32_t Sampler::draw_from_all(std::span<const float> logits, float top, double uniform) {
  weights_.resize(logits.size());
  kernels_.exp_shifted(logits.data(), top, 1 / params_.temperature,
                       static_cast<int64_t>(logits.size()), weights_.data());
  double total = 0;
  for (float weight : weights_) total += weight > 0 ? weight : 0;  // NaN counts for nothing
  double left = uniform * total;
  int32_t last = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (!(weights_[i] > 0)) continue;
    last = static_cast<int32_t>(i);
    left -= weights_[i];
    if (left < 0) break;
  }
  return last;
}

int32_t Sampler::draw_from_kept(std::span<const float> logits, float top, double uniform) {
  kept_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) kept_.push_back({logits[i], static_cast<int32_t>(i)});
  }
  // A filter that would keep nothing (a checkpoint may recommend any value) keeps the best.
  if (params_.top_p < 1) keep_top_p(top);
  if (params_.min_p > 0) keep_min_p(top);
  if (params_.top_k > 0) keep_top_k();
  const auto weight = [&](const Candidate& c) {
    return std::exp(double{c.logit - top} / double{params_.temperature});
  };
  double total = 0;
  for (const Candidate& c : kept_) total += weight(c);
  double left = uniform * total;
  for (const Candidate& c : kept_) {
    left -= weight(c);
    if (left < 0) return c.id;
  }
  return kept_.back().id;
}

/// Keeps the smallest set of most likely tokens whose probability reaches top_p, by partition
/// around pivots: only the part that holds the boundary is looked at again.
void Sampler::keep_top_p(float top) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto mass = [&](auto begin, auto end) {
    double sum = 0;
    for (auto it = begin; it != end; ++it) sum += std::exp(double{it->logit - top});
    return sum;
  };
  const double total = mass(kept_.begin(), kept_.end());
  double wanted = total * std::max(double{params_.top_p}, std::numeric_limits<double>::min());
  auto low = kept_.begin(), high = kept_.end();
  while (high - low > 1) {
    const Candidate pivot = low[(high - low) / 2];
    const auto middle =
        std::partition(low, high, [&](const Candidate& c) { return before(c, pivot); });
    const double ahead = mass(low, middle);
    if (ahead >= wanted) {
      high = middle;
      continue;
    }
    wanted -= ahead;
    // The pivot itself is the most likely of the rest: move it to the front, take it, go on.
    const auto at =
        std::find_if(middle, high, [&](const Candidate& c) { return c.id == pivot.id; });
    std::iter_swap(middle, at);
    wanted -= mass(middle, middle + 1);
    low = middle + 1;
    if (wanted <= 0) high = low;
  }
  kept_.erase(high, kept_.end());
}

void Sampler::keep_min_p(float top) {
  const float least = top + std::log(std::min(params_.min_p, 1.0f));
  std::erase_if(kept_, [&](const Candidate& c) { return c.logit < least; });
}

void Sampler::keep_top_k() {
  const auto k = static_cast<size_t>(params_.top_k);
  if (k >= kept_.size()) return;
  std::nth_element(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(k), kept_.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
                   });
  kept_.resize(k);
}

}  // namespace cohort::engine
