// The sampler against a plain sorted reference, in distribution, and at its edges.

#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "tests/support/random_data.h"

namespace cohort::engine {
namespace {

using kernels::cpu::available_kernels;
using kernels::cpu::best_kernels;
using kernels::cpu::Kernels;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int32_t sample(const SamplingParams& params, std::vector<float> logits, int64_t position = 0,
               std::vector<int32_t> prompt = {}, const std::vector<int32_t>& answer = {}) {
  Sampler sampler(params, prompt, best_kernels());
  for (int32_t id : answer) sampler.accept(id);
  return sampler.sample(logits, position);
}

/// The ids that `draws` draws at different positions give.
std::set<int32_t> support(const SamplingParams& params, const std::vector<float>& logits,
                          int draws) {
  std::set<int32_t> ids;
  for (int position = 0; position < draws; ++position) ids.insert(sample(params, logits, position));
  return ids;
}

/// Ids that the filters keep, by sorting: {surely kept, perhaps kept}. A token whose fate hangs on
/// the rounding of a sum may go either way.
struct Kept {
  std::set<int32_t> sure, perhaps;
};

Kept kept_by_sorting(const SamplingParams& params, const std::vector<float>& logits) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::ranges::stable_sort(order, std::greater(), [&](int32_t id) { return logits[id]; });
  const double top = logits[order[0]];
  double total = 0;
  for (float logit : logits) total += std::exp(logit - top);
  Kept kept;
  double ahead = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const float logit = logits[order[rank]];
    const double relative = std::exp(logit - top);
    const bool k = params.top_k == 0 || rank < static_cast<size_t>(params.top_k);
    const auto within = [&](double slack) {
      const bool p = params.top_p >= 1 || ahead / total < params.top_p + slack;
      const bool m = params.min_p == 0 || relative >= params.min_p - slack;
      return (p && m && k) || rank == 0;
    };
    if (within(-1e-6)) kept.sure.insert(order[rank]);
    if (within(1e-6)) kept.perhaps.insert(order[rank]);
    ahead += relative;
  }
  return kept;
}

SamplingParams random_filters(std::mt19937& random) {
  SamplingParams params{.temperature = 1, .seed = random()};
  const auto which = 1 + random() % 7;
  if (which & 1) params.top_p = static_cast<float>(1 + random() % 999) / 1000;
  if (which & 2) params.min_p = static_cast<float>(1 + random() % 999) / 1000;
  if (which & 4) params.top_k = static_cast<int32_t>(1 + random() % 70);
  return params;
}

TEST(Sampler, FiltersKeepWhatASortedReferenceKeeps) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    const size_t vocab = 1 + random() % 60;
    std::vector<float> logits = test::random_floats(vocab, static_cast<uint32_t>(random()), 1.5f);
    if (round % 3 == 0) {
      for (float& logit : logits) logit = std::round(logit);  // ties
    }
    // Flat enough that every kept token shows up, without changing what is kept.
    SamplingParams params = random_filters(random);
    params.temperature = 1e6f;
    const Kept kept = kept_by_sorting(params, logits);
    const std::set<int32_t> seen = support(params, logits, static_cast<int>(vocab) * 15);
    EXPECT_TRUE(std::ranges::includes(kept.perhaps, seen))
        << "round " << round << " drew a token that is filtered out";
    EXPECT_TRUE(std::ranges::includes(seen, kept.sure)) << "round " << round << " never drew one";
  }
}

/// Chi-square of draws against softmax(logits / temperature) over `ids`, divided by what 5 sigma
/// allow: at most 1 for a sampler that is right.
double misfit(const SamplingParams& params, const std::vector<float>& logits,
              const std::vector<int32_t>& ids, int draws) {
  std::map<int32_t, double> expected;
  double total = 0;
  for (int32_t id : ids) total += expected[id] = std::exp(logits[id] / double{params.temperature});
  std::map<int32_t, int> count;
  for (int position = 0; position < draws; ++position) ++count[sample(params, logits, position)];
  double chi_square = 0;
  int drawn = 0;
  for (auto& [id, weight] : expected) {
    const double mean = weight / total * draws;
    chi_square += (count[id] - mean) * (count[id] - mean) / mean;
    drawn += count[id];
  }
  if (drawn != draws) return kInfinity;  // something else was drawn
  const double freedom = static_cast<double>(ids.size()) - 1;
  return chi_square / (freedom + 5 * std::sqrt(2 * freedom));
}

TEST(Sampler, DrawsFollowTheTemperedDistribution) {
  const std::vector<float> logits = test::random_floats(24, 5, 1.0f);
  std::vector<int32_t> all(24);
  for (int32_t i = 0; i < 24; ++i) all[i] = i;
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    EXPECT_LE(misfit({.temperature = temperature, .seed = 9}, logits, all, 20000), 1);
  }
  std::vector<int32_t> best = all;
  std::ranges::sort(best, std::greater(), [&](int32_t id) { return logits[id]; });
  best.resize(6);
  EXPECT_LE(misfit({.temperature = 0.8f, .top_k = 6, .seed = 9}, logits, best, 20000), 1);
}

TEST(Sampler, UniformNumbersAreUniformOverPositionsAndSeeds) {
  for (bool over_seeds : {false, true}) {
    std::vector<int> count(64);
    constexpr int kDraws = 64000;
    for (int i = 0; i < kDraws; ++i) {
      const double u = over_seeds ? uniform_at(static_cast<uint64_t>(i), 7) : uniform_at(7, i);
      ASSERT_GE(u, 0);
      ASSERT_LT(u, 1);
      ++count[static_cast<size_t>(u * 64)];
    }
    double chi_square = 0;
    for (int c : count) chi_square += (c - 1000.0) * (c - 1000.0) / 1000.0;
    EXPECT_LT(chi_square, 63 + 5 * std::sqrt(2 * 63.0));
  }
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(sample({.temperature = 0}, {1, 5, 5, 2}), 1);
  EXPECT_EQ(sample({.temperature = 0, .top_p = 0.1f, .top_k = 1}, {-3, -2, -1}), 2);
  std::vector<float> wide(1000, -1.0f);
  wide[777] = 3;
  wide[999] = 3;
  EXPECT_EQ(sample({.temperature = 0}, wide), 777);
}

TEST(Sampler, TheSameSeedAndPositionDrawTheSameToken) {
  const std::vector<float> logits = test::random_floats(300, 6);
  std::set<std::vector<int32_t>> answers;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SamplingParams params{.temperature = 1, .top_p = 0.95f, .seed = seed};
    std::vector<int32_t> forward, backward;
    Sampler one(params, {}, best_kernels());
    for (int64_t position = 0; position < 20; ++position) {
      std::vector<float> copy = logits;
      forward.push_back(one.sample(copy, position));
      // A sampler that has drawn other positions before draws the same here.
      backward.push_back(sample(params, logits, 19 - position));
    }
    std::ranges::reverse(backward);
    EXPECT_EQ(forward, backward) << seed;
    answers.insert(forward);
  }
  EXPECT_EQ(answers.size(), 20U) << "seeds differ";
}

TEST(Sampler, InstructionSetsDrawEqualTokens) {
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 0.9f, .seed = 3},
        SamplingParams{.temperature = 1.3f, .top_p = 0.9f, .min_p = 0.01f, .seed = 3}}) {
    for (uint32_t round = 0; round < 100; ++round) {
      const std::vector<float> logits = test::random_floats(1 + round * 7, round, 3.0f);
      std::set<int32_t> ids;
      for (const Kernels* kernels : available_kernels()) {
        std::vector<float> copy = logits;
        ids.insert(Sampler(params, {}, *kernels).sample(copy, round));
      }
      EXPECT_EQ(ids.size(), 1U) << "round " << round;
    }
  }
}

TEST(Sampler, RepetitionPenaltyCountsPromptAndAnswerOnce) {
  const SamplingParams params{.temperature = 0, .repetition_penalty = 2};
  EXPECT_EQ(sample(params, {4, 3, 1}, 0, {0}), 1);                  // 4 / 2 < 3
  EXPECT_EQ(sample(params, {4, 1.5f, 1}, 0, {0, 0, 0}), 0);         // once, not three times
  EXPECT_EQ(sample(params, {4, 1.5f, 1}, 0, {0, 0}, {0, 0}), 0);    // in both: still once
  EXPECT_EQ(sample(params, {4, 3, 1}, 0, {}, {0}), 1);              // the answer counts too
  EXPECT_EQ(sample(params, {-1, -1.5f, -1.9f}, 0, {0}), 1);         // negative: multiplied
  EXPECT_EQ(sample({.temperature = 0}, {4, 3, 1}, 0, {0}, {0}), 0)  // off
      << "penalties are off by default";
}

TEST(Sampler, PresenceAndFrequencyPenaltiesCountTheAnswerOnly) {
  const SamplingParams presence{.temperature = 0, .presence_penalty = 1};
  EXPECT_EQ(sample(presence, {4, 3.5f}, 0, {0, 0}), 0) << "not the prompt";
  EXPECT_EQ(sample(presence, {4, 3.5f}, 0, {}, {0}), 1);
  EXPECT_EQ(sample(presence, {4, 2.9f}, 0, {}, {0, 0, 0}), 0) << "once, however often";
  const SamplingParams frequency{.temperature = 0, .frequency_penalty = 0.5f};
  EXPECT_EQ(sample(frequency, {4, 3.2f}, 0, {0, 0, 0}), 0) << "not the prompt";
  EXPECT_EQ(sample(frequency, {4, 3.2f}, 0, {}, {0}), 0);
  EXPECT_EQ(sample(frequency, {4, 3.2f}, 0, {}, {0, 0}), 1) << "each time";
  EXPECT_EQ(sample({.temperature = 0, .presence_penalty = -2}, {4, 3}, 0, {}, {1}), 1)
      << "a negative penalty favours";
}

TEST(Sampler, LogitBiasIsAddedBeforeAllElse) {
  EXPECT_EQ(sample({.temperature = 0, .logit_bias = {{2, 100}}}, {4, 3, 1}), 2);
  EXPECT_EQ(sample({.temperature = 0, .logit_bias = {{0, -100}, {1, -100}}}, {4, 3, 1}), 2);
  const SamplingParams drawn{.temperature = 1, .top_k = 1, .logit_bias = {{2, 100}}};
  EXPECT_EQ(support(drawn, {4, 3, 1}, 50), (std::set<int32_t>{2}));
  const SamplingParams banned{.temperature = 5, .seed = 2, .logit_bias = {{0, -kInfinity}}};
  EXPECT_EQ(support(banned, {4, 3, 1}, 300), (std::set<int32_t>{1, 2}));
}

TEST(Sampler, LogitsWithoutAFiniteOneAreAnError) {
  const std::vector<SamplingParams> all{{.temperature = 0},
                                        {.temperature = 1},
                                        {.temperature = 1, .top_p = 0.5f},
                                        {.temperature = 1, .top_k = 3}};
  for (const SamplingParams& params : all) {
    for (float value : {kNan, -kInfinity, kInfinity}) {
      for (size_t vocab : {1, 15, 16, 17, 300}) {
        EXPECT_THROW(sample(params, std::vector<float>(vocab, value)), Error)
            << value << " x " << vocab;
      }
    }
  }
}

TEST(Sampler, NanAndMinusInfinityAreNeverDrawn) {
  std::vector<float> logits(40, kNan);
  for (size_t i = 0; i < 20; ++i) logits[2 * i] = -kInfinity;
  logits[7] = 1;
  logits[30] = 1.5f;
  for (float temperature : {1.0f, 1e6f, std::numeric_limits<float>::max(), kInfinity}) {
    for (SamplingParams params : {SamplingParams{}, SamplingParams{.top_p = 0.999f},
                                  SamplingParams{.top_k = 30}, SamplingParams{.min_p = 1e-30f}}) {
      params.temperature = temperature;
      EXPECT_EQ(support(params, logits, 200), (std::set<int32_t>{7, 30})) << temperature;
    }
  }
  EXPECT_EQ(sample({.temperature = 0}, logits), 30);
}

TEST(Sampler, ExtremeTemperaturesAreGreedyOrUniform) {
  const std::vector<float> logits = test::random_floats(30, 8, 5.0f);
  const auto best = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  for (float temperature : {0.0f, 1e-30f, 1e-6f, 1e-5f, 1e-4f, -1.0f}) {
    for (float top_p : {0.5f, 1.0f}) {
      const SamplingParams cold{.temperature = temperature, .top_p = top_p};
      EXPECT_EQ(support(cold, logits, 50), std::set<int32_t>{best}) << temperature;
    }
  }
  for (float temperature : {1e6f, 1e30f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(support({.temperature = temperature}, logits, 1500).size(), 30U) << temperature;
    EXPECT_EQ(support({.temperature = temperature, .top_k = 12}, logits, 800).size(), 12U);
  }
}

TEST(Sampler, FiltersBeyondTheirRangesKeepAtLeastTheBest) {
  const std::vector<float> logits{1, 4, 2, 3};
  EXPECT_EQ(support({.temperature = 1e6f, .top_k = 5000}, logits, 200).size(), 4U);
  EXPECT_EQ(support({.temperature = 1e6f, .top_k = -1}, logits, 200).size(), 4U);
  EXPECT_EQ(support({.temperature = 1e6f, .top_k = 1}, logits, 50), std::set<int32_t>{1});
  EXPECT_EQ(support({.temperature = 1e6f, .min_p = 1}, logits, 50), std::set<int32_t>{1});
  // What a generation_config.json may hold, as no API checks it.
  EXPECT_EQ(support({.temperature = 1e6f, .min_p = 3}, logits, 50), std::set<int32_t>{1});
  for (float top_p : {1e-30f, 0.0f, -1.0f}) {
    EXPECT_EQ(support({.temperature = 1e6f, .top_p = top_p}, logits, 50), std::set<int32_t>{1});
  }
  EXPECT_EQ(sample({.temperature = 1, .top_p = 0.5f, .top_k = 3}, {2.5f}), 0);
}

}  // namespace
}  // namespace cohort::engine
