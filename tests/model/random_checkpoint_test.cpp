// Random models are fit to test with: they depend on what they read, and on where it stands.

#include "tests/support/random_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kv/scheme.h"
#include "tests/support/crowd.h"

namespace cohort::model {
namespace {

using kernels::cpu::Cpu;
using test::KnownRow;

double deviation(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto n = static_cast<double>(values.size());
  return std::sqrt(squares / n - sum / n * (sum / n));
}

TEST(RandomCheckpoint, LogitsDependOnTheOrderOfTokensFarBack) {
  std::mt19937 random(1);
  Cpu cpu(1);
  for (const std::string& family : test::random_families()) {
    for (int dim : {64, 128, 256}) {
      SCOPED_TRACE(fmt::format("{} of {}", family, dim));
      const test::RandomCheckpoint checkpoint({.family = family, .head_dim = dim});
      const auto model = load_model(checkpoint.opened(), {.exact = true}, cpu);
      const auto precision = kv::resolve({.dense_bf16 = false}, model->shape().layers);
      std::vector<int32_t> ids = test::random_ids(*model, 80, random);
      const auto last_logits = [&] {
        const KnownRow row = test::known_row(*model, cpu, "", precision, ids);
        return std::vector<float>(row.logits.end() - model->shape().vocab_size, row.logits.end());
      };
      const std::vector<float> logits = last_logits();
      EXPECT_GT(deviation(logits), 0.5);
      EXPECT_LT(deviation(logits), 5);
      std::swap(ids[20], ids[50]);
      std::vector<float> change = last_logits();
      for (size_t i = 0; i < change.size(); ++i) change[i] -= logits[i];
      EXPECT_GT(deviation(change), 0.02);
    }
  }
}

}  // namespace
}  // namespace cohort::model
