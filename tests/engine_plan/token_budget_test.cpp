// The budget against machines whose times are known.

#include "engine/token_budget.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cohort::engine {
namespace {

/// A machine that takes `base` + `row` for each decoding row + `token` for each prompt token.
struct Machine {
  double base = 0.005, row = 0.001, token = 0.001;

  double step(size_t decoding, int64_t prefilled) const {
    return base + row * static_cast<double>(decoding) + token * static_cast<double>(prefilled);
  }
  /// Plays a forward.
  int64_t play(TokenBudget& budget, size_t decoding) const {
    const SchedulerLimits limits = budget.limits(decoding);
    const int64_t tokens = decoding > 0 ? limits.mixed_tokens : limits.prefill_tokens;
    budget.observe(decoding, tokens, step(decoding, tokens));
    return tokens;
  }
};

TEST(TokenBudget, MeasuresAPaceOnceAndThenKeepsIt) {
  TokenBudget budget({});
  const Machine machine;
  EXPECT_EQ(machine.play(budget, 5), 0);  // 10 ms
  for (int i = 0; i < 10; ++i) machine.play(budget, 5);
  EXPECT_EQ(machine.play(budget, 5), 5) << "half of 10 ms";
  EXPECT_EQ(machine.play(budget, 9), 0) << "another number of rows, another pace";
  EXPECT_EQ(machine.play(budget, 9), 7);
  EXPECT_EQ(machine.play(budget, 5), 5) << "still known";
}

TEST(TokenBudget, APaceIsMeasuredAnewNowAndThen) {
  TokenBudget budget({});
  Machine machine;
  int measured = 0;
  for (int i = 0; i < 1000; ++i) measured += machine.play(budget, 5) == 0;
  EXPECT_GE(measured, 5);
  EXPECT_LE(measured, 10);
}

TEST(TokenBudget, ATargetIsKept) {
  TokenBudget budget({.itl_target_s = 0.05});
  const Machine machine;
  for (int i = 0; i < 20; ++i) machine.play(budget, 5);
  EXPECT_EQ(machine.play(budget, 5), 40);
  TokenBudget hopeless({.itl_target_s = 0.001});
  for (int i = 0; i < 20; ++i) machine.play(hopeless, 5);
  EXPECT_GT(machine.play(hopeless, 5), 0) << "prompts are not starved";
}

TEST(TokenBudget, ADisturbedMeasurementDoesNotMakePromptTokensFree) {
  TokenBudget budget({});
  const Machine slow{.base = 0.1, .row = 0.02, .token = 0.02}, fast;
  EXPECT_EQ(slow.play(budget, 4), 0);
  double longest = 0;
  for (int i = 0; i < 300; ++i) {
    const int64_t tokens = fast.play(budget, 4);
    longest = std::max(longest, fast.step(4, tokens));
  }
  EXPECT_LE(longest, 1.5 * slow.step(4, 0)) << "at worst the pace that was measured";
  for (int i = 0; i < 300; ++i) fast.play(budget, 4);
  EXPECT_LE(fast.step(4, fast.play(budget, 4)), 2 * fast.step(4, 0)) << "and soon the true one";
}

TEST(TokenBudget, AloneAForwardTakesAQuarterOfASecond) {
  TokenBudget budget({});
  const Machine machine{.base = 0, .token = 0.002};
  for (int i = 0; i < 5; ++i) machine.play(budget, 0);
  EXPECT_EQ(machine.play(budget, 0), 125);
  const Machine quick{.base = 0, .token = 1e-6};
  for (int i = 0; i < 10; ++i) quick.play(budget, 0);
  EXPECT_EQ(quick.play(budget, 0), 2048);
}

TEST(TokenBudget, WhatTheUserSaysIsExact) {
  const TokenBudget budget({.alone_tokens = 17, .mixed_tokens = 3});
  EXPECT_EQ(budget.limits(0).prefill_tokens, 17);
  EXPECT_EQ(budget.limits(4).mixed_tokens, 3);
}

}  // namespace
}  // namespace cohort::engine
