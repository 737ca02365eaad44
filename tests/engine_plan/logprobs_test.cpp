// Logprobs against a sorted reference in double precision, and at their edges.

#include "engine/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "tests/support/random_data.h"

namespace cohort::engine {
namespace {

using kernels::cpu::available_kernels;
using kernels::cpu::best_kernels;
using kernels::cpu::Kernels;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ScoredToken score_of(const std::vector<float>& logits, int32_t token, int top) {
  return score(logits, token, top, best_kernels());
}

std::vector<int32_t> ids_of(const std::vector<TokenLogprob>& tokens) {
  std::vector<int32_t> ids;
  for (const TokenLogprob& token : tokens) ids.push_back(token.id);
  return ids;
}

/// The finite logits by size, equals by id, with their logprobs.
std::vector<TokenLogprob> by_sorting(const std::vector<float>& logits) {
  std::vector<TokenLogprob> all;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) all.push_back({static_cast<int32_t>(id), logits[id]});
  }
  std::ranges::stable_sort(all, std::greater(), &TokenLogprob::logprob);
  if (all.empty()) return all;
  const double largest = all.front().logprob;
  double total = 0;
  for (const TokenLogprob& token : all) total += std::exp(token.logprob - largest);
  for (TokenLogprob& token : all) {
    token.logprob = static_cast<float>(token.logprob - largest - std::log(total));
  }
  return all;
}

/// Logits of many shapes: flat and sharp, with ties and with what is not finite.
std::vector<float> random_logits(std::mt19937& random) {
  const size_t vocab = 1 + random() % 3000;
  const float scale = std::exp2(static_cast<float>(random() % 6));
  std::vector<float> logits = test::random_floats(vocab, static_cast<uint32_t>(random()), scale);
  if (random() % 3 == 0) {
    for (float& logit : logits) logit = std::round(logit);
  }
  if (random() % 3 == 0) {
    for (const float broken : {kNan, -kInfinity}) {
      for (size_t i = 0; i < vocab / 4; ++i) logits[random() % vocab] = broken;
    }
  }
  return logits;
}

TEST(Logprobs, AreThoseOfASortedReference) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> logits = random_logits(random);
    const std::vector<TokenLogprob> expected = by_sorting(logits);
    const int top = static_cast<int>(random() % 21);
    const auto token = static_cast<int32_t>(random() % logits.size());
    const ScoredToken scored = score_of(logits, token, top);
    ASSERT_EQ(scored.top.size(), std::min(expected.size(), static_cast<size_t>(top)));
    for (size_t i = 0; i < scored.top.size(); ++i) {
      EXPECT_EQ(scored.top[i].id, expected[i].id) << "round " << round << " rank " << i;
      EXPECT_NEAR(scored.top[i].logprob, expected[i].logprob,
                  2e-6 + std::abs(expected[i].logprob) * 1e-6);
    }
    EXPECT_EQ(scored.token.id, token);
    const auto at = std::ranges::find(expected, token, &TokenLogprob::id);
    const float logprob = at == expected.end() ? kLeastLogprob : at->logprob;
    EXPECT_NEAR(scored.token.logprob, logprob, 2e-6 + std::abs(logprob) * 1e-6) << round;
  }
}

TEST(Logprobs, OfTheWholeVocabularyAddUpToOne) {
  const std::vector<float> logits = test::random_floats(5000, 3, 2.0f);
  double sum = 0;
  for (const TokenLogprob& token : score_of(logits, 0, 5000).top) sum += std::exp(token.logprob);
  EXPECT_NEAR(sum, 1, 1e-5);
}

TEST(Logprobs, OfATokenAreTheSameAmongTheLikeliest) {
  const std::vector<float> logits = test::random_floats(700, 4, 3.0f);
  for (const TokenLogprob& token : score_of(logits, 0, 20).top) {
    EXPECT_EQ(score_of(logits, token.id, 0).token.logprob, token.logprob);
  }
}

TEST(Logprobs, OfEqualTokensComeByLowerId) {
  EXPECT_EQ(ids_of(score_of({1, 2, 1, 2, 1}, 0, 4).top), (std::vector<int32_t>{1, 3, 0, 2}));
  EXPECT_EQ(ids_of(score_of({0, -0.0f, 0}, 0, 2).top), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(ids_of(score_of(std::vector<float>(100, 5), 0, 3).top),
            (std::vector<int32_t>{0, 1, 2}));
  EXPECT_FLOAT_EQ(score_of(std::vector<float>(100, 5), 99, 0).token.logprob, std::log(0.01f));
}

TEST(Logprobs, LeaveOutWhatIsNotFinite) {
  const std::vector<float> logits{kNan, 1, -kInfinity, 1, kInfinity};
  const ScoredToken scored = score_of(logits, 3, 20);
  EXPECT_EQ(ids_of(scored.top), (std::vector<int32_t>{1, 3}));
  EXPECT_FLOAT_EQ(scored.token.logprob, std::log(0.5f));
  for (const int32_t broken : {0, 2, 4}) {
    EXPECT_EQ(score_of(logits, broken, 0).token.logprob, kLeastLogprob);
  }
  for (const float value : {kNan, kInfinity, -kInfinity}) {
    const ScoredToken nothing = score_of(std::vector<float>(20, value), 7, 5);
    EXPECT_EQ(nothing.token.id, 7);
    EXPECT_EQ(nothing.token.logprob, kLeastLogprob);
    EXPECT_TRUE(nothing.top.empty());
  }
}

TEST(Logprobs, AreFiniteAndNeverAboveZero) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const std::vector<float>& logits :
       {std::vector<float>{kMost, -kMost}, {-kMost, -kMost}, {0, -1e5f}, {88, -88}, {3}}) {
    for (const TokenLogprob& token : score_of(logits, 0, 20).top) {
      EXPECT_LE(token.logprob, 0);
      EXPECT_GE(token.logprob, kLeastLogprob);
    }
  }
  EXPECT_EQ(score_of({3}, 0, 1).top.front().logprob, 0);
}

TEST(Logprobs, AreTheSameBitsInEveryInstructionSet) {
  const auto bits = [](const TokenLogprob& token) {
    return std::bit_cast<uint32_t>(token.logprob);
  };
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    const std::vector<float> logits = random_logits(random);
    const auto token = static_cast<int32_t>(random() % logits.size());
    const ScoredToken expected = score_of(logits, token, 20);
    for (const Kernels* kernels : available_kernels()) {
      const ScoredToken scored = score(logits, token, 20, *kernels);
      EXPECT_EQ(bits(scored.token), bits(expected.token)) << kernels->name;
      ASSERT_EQ(ids_of(scored.top), ids_of(expected.top)) << kernels->name;
      for (size_t i = 0; i < scored.top.size(); ++i) {
        EXPECT_EQ(bits(scored.top[i]), bits(expected.top[i])) << kernels->name;
      }
    }
  }
}

TEST(Logprobs, OfATokenWithoutALogitAreOurMistake) {
  EXPECT_THROW(score_of({1, 2}, 2, 0), Error);
  EXPECT_THROW(score_of({1, 2}, -1, 0), Error);
}

}  // namespace
}  // namespace cohort::engine
