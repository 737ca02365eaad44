// However a row stores its keys and values, its logits are the same bits alone and in any crowd,
// cut back, cloned, and wherever its precision changes.

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "kv/scheme.h"
#include "model/decoder.h"
#include "tests/support/crowd.h"
#include "tests/support/crowd_kernels.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/rounds.h"

namespace cohort::model {
namespace {

using kernels::cpu::Cpu;
using kernels::cpu::Kernels;
using kv::KvScheme;
using test::Crowd;
using test::CrowdEvents;
using test::KnownRow;
using test::RandomModel;

struct Case {
  RandomModel model;
  bool exact = false;
  int64_t keep = 0;  // with it: a llama whose layers have a window of 100, all but the last
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model.family << " of " << c.model.head_dim << (c.exact ? " exact" : "")
       << (c.model.blocks ? " blocks" : "") << (c.keep > 0 ? " that keeps" : "");
}

/// No family keeps tokens beside a window yet.
std::unique_ptr<Model> load_keeping(const Case& c, const Checkpoint& checkpoint, Cpu& cpu) {
  const Source source(checkpoint);
  DecoderSpec spec = read_decoder_spec(ConfigReader(source.config, checkpoint.path), source);
  spec.query_scale = 1 / std::sqrt(static_cast<float>(c.model.head_dim));
  spec.ropes.emplace_back(c.model.head_dim, nn::RopeSettings{});
  for (size_t i = 0; i + 1 < spec.shape.layers.size(); ++i) {
    spec.kv(i).window = 100;
    spec.kv(i).keep = c.keep;
  }
  return std::make_unique<Decoder>(std::move(spec), source, LoadOptions{.exact = c.exact}, cpu);
}

std::unique_ptr<Model> load(const Case& c, Cpu& cpu) {
  const test::RandomCheckpoint checkpoint(c.model);
  if (c.keep > 0) return load_keeping(c, checkpoint.opened(), cpu);
  return load_model(checkpoint.opened(), {.exact = c.exact}, cpu);
}

/// Every way to store a row.
std::vector<KvScheme> schemes() {
  using Kind = KvScheme::Kind;
  std::vector<KvScheme> all{
      {.kind = Kind::kOff},
      {.kind = Kind::kOff, .dense_bf16 = false},
      {.kind = Kind::kUniform, .bits = 8, .group = 64},
      {.kind = Kind::kUniform, .dense_bf16 = false, .bits = 8, .group = 32},
      {.kind = Kind::kUniform, .bits = 4, .group = 64},
      {.kind = Kind::kUniform, .bits = 4, .group = 128},
      {.kind = Kind::kConfig, .layers = {{1, 4, 64}, {2, 8, 32}}},
      {.kind = Kind::kTurbo, .key_bits = 8, .value_bits = 3, .turbo_skip_ends = 1},
  };
  for (const auto& [key_bits, value_bits] :
       {std::pair{8, 3}, {8, 4}, {4, 3}, {2, 2}, {5, 5}, {8, 8}}) {
    all.push_back({.kind = Kind::kTurbo, .key_bits = key_bits, .value_bits = value_bits});
  }
  return all;
}

constexpr int64_t kStarts[] = {0, 5, 63, 64, 65, 100, 130};

class KvInvariance : public testing::TestWithParam<Case> {
 protected:
  KvInvariance() : reference_(load(GetParam(), reference_cpu_)) {}

  /// Two rows of each scheme that the heads allow, which begin alike; over the rounds, with every
  /// start.
  std::vector<KnownRow> known_rows(uint32_t round) {
    std::vector<KnownRow> rows;
    size_t turn = round * 3 + static_cast<size_t>(GetParam().model.head_dim) / 64;
    for (KvScheme scheme : schemes()) {
      scheme.start = kStarts[turn++ % std::size(kStarts)];
      if (!possible(scheme)) continue;
      rows.push_back(known(scheme, test::random_ids(*reference_, length(scheme), random_)));
      const size_t size = std::max(rows.back().ids.size(), length(scheme));
      const auto alike = std::span(rows.back().ids).first(1 + random_() % rows.back().ids.size());
      rows.push_back(known(scheme, test::random_ids(*reference_, size, random_, alike)));
    }
    return rows;
  }

  /// Mostly past the change of precision, sometimes past a window, too.
  size_t length(const KvScheme& scheme) {
    const size_t more = random_() % 80 + (random_() % 4 == 0 ? 100 : 0);
    return static_cast<size_t>(std::max<int64_t>(1, scheme.start - 10)) + more;
  }

  KnownRow known(const KvScheme& scheme, std::vector<int32_t> ids) {
    return test::known_row(*reference_, reference_cpu_, scheme.name(),
                           kv::resolve(scheme, reference_->shape().layers), std::move(ids));
  }

  bool possible(const KvScheme& scheme) const {
    try {
      kv::resolve(scheme, reference_->shape().layers);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported) << error.what();
      return false;
    }
  }

  size_t draw(std::initializer_list<size_t> from) { return from.begin()[random_() % from.size()]; }

  std::mt19937 random_;
  Cpu reference_cpu_{1};
  std::unique_ptr<Model> reference_;
};

TEST_P(KvInvariance, RowsOfAllSchemesInACrowdHaveTheBitsOfTheRowAlone) {
  CrowdEvents seen;
  for (uint32_t round = 0; round < test::rounds(); ++round) {
    random_.seed(round);
    const std::vector<KnownRow> rows = known_rows(round);
    ASSERT_GE(rows.size(), 24U);
    for (const Kernels* kernels : test::crowd_kernels()) {
      Cpu cpu(1 + static_cast<int>(random_() % 3), *kernels);
      const std::unique_ptr<Model> model = load(GetParam(), cpu);
      Crowd crowd(*model, cpu, rows, random_);
      for (size_t count, done = 0; done < rows.size() / 4; done += count) {
        count = draw({1, 2, 4, 7});
        const size_t chunk = draw({1, 7, 33, 64, 100, 2048});
        SCOPED_TRACE(fmt::format("round {}, {}, {} threads, {} rows, chunks of {}", round,
                                 kernels->name, cpu.pool().size(), count, chunk));
        crowd.run(count, chunk, {.repeats = 2, .cuts = count, .clones = count});
        if (HasFatalFailure()) return;
      }
      seen += crowd.seen();
    }
  }
  EXPECT_GT(seen.repeats, 0U);
  EXPECT_GT(seen.cuts, 0U);
  EXPECT_GT(seen.clones, 0U);
  EXPECT_GT(seen.turns, 0U);
  EXPECT_GT(seen.changes, 0U);
}

std::vector<Case> cases() {
  std::vector<Case> all{{{.blocks = true}}, {{.head_dim = 128}, false, 64}, {{}, false, 128}};
  for (const std::string& family : test::random_families()) {
    for (int dim : {64, 128, 256}) all.push_back({{.family = family, .head_dim = dim}});
    all.push_back({{.family = family}, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, KvInvariance, testing::ValuesIn(cases()));

/// Where the change comes at the end of a segment of 1024 keys, and just after it.
TEST(KvInvarianceOverSegments, ALongRowAmongShortOnesHasTheBitsOfTheRowAlone) {
  std::mt19937 random(7);
  Cpu reference_cpu(2);
  const Case c{{.layers = 1}};
  const std::unique_ptr<Model> reference = load(c, reference_cpu);
  using Kind = KvScheme::Kind;
  std::vector<KnownRow> rows;
  for (const KvScheme& scheme : {KvScheme{.kind = Kind::kTurbo, .start = 1024},
                                 KvScheme{.kind = Kind::kUniform, .start = 1030},
                                 KvScheme{.kind = Kind::kUniform, .bits = 4}}) {
    const kv::RowPrecision precision = kv::resolve(scheme, reference->shape().layers);
    for (size_t length : {30, 1060}) {
      rows.push_back(test::known_row(*reference, reference_cpu, scheme.name(), precision,
                                     test::random_ids(*reference, length, random)));
    }
  }
  for (const Kernels* kernels : test::crowd_kernels()) {
    Cpu cpu(2, *kernels);
    const std::unique_ptr<Model> model = load(c, cpu);
    SCOPED_TRACE(kernels->name);
    Crowd(*model, cpu, rows, random).run(rows.size(), 300, {.cuts = 2, .clones = 1});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace cohort::model
