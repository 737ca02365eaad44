// A row's logits are the same bits alone and in any crowd, chunking, instruction set and thread
// count.

#include <gtest/gtest.h>

#include "kv/scheme.h"
#include "model/checkpoint.h"
#include "tests/support/crowd.h"
#include "tests/support/crowd_kernels.h"
#include "tests/support/random_checkpoint.h"

namespace cohort::model {
namespace {

using kernels::cpu::Cpu;
using kernels::cpu::Kernels;
using test::Crowd;
using test::KnownRow;

struct Case {
  std::string folder;  // of the goldens; "" = random blocks
  bool exact;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << (c.folder.empty() ? "blocks" : c.folder) << (c.exact ? " exact" : " default");
}

std::unique_ptr<Model> load(const Case& c, Cpu& cpu) {
  if (c.folder.empty()) {
    const test::RandomCheckpoint blocks({.layers = 1, .blocks = true});
    return load_model(blocks.opened(), {.exact = c.exact}, cpu);
  }
  const std::string path = std::string(COHORT_GOLDENS) + "/" + c.folder;
  return load_model(Checkpoint::open(path), {.exact = c.exact}, cpu);
}

class RowInvariance : public testing::TestWithParam<Case> {
 protected:
  RowInvariance() : reference_(load(GetParam(), reference_cpu_)) {
    // Around the edges of blocks.
    for (size_t length : {1, 2, 3, 7, 8, 9, 20, 30, 40, 63, 64, 65, 66, 100, 128, 129}) {
      rows_.push_back(known(length));
    }
  }

  KnownRow known(size_t length) {
    return test::known_row(
        *reference_, reference_cpu_, "dense",
        kv::resolve({.dense_bf16 = !GetParam().exact}, reference_->shape().layers),
        test::random_ids(*reference_, length, random_));
  }

  std::mt19937 random_{20260101};
  Cpu reference_cpu_{1};
  std::unique_ptr<Model> reference_;
  std::vector<KnownRow> rows_;
};

TEST_P(RowInvariance, LogitsAreTheBitsOfTheRowAlone) {
  for (const Kernels* kernels : test::crowd_kernels()) {
    for (int threads : {1, 2, 3}) {
      Cpu cpu(threads, *kernels);
      const std::unique_ptr<Model> model = load(GetParam(), cpu);
      Crowd crowd(*model, cpu, rows_, random_);
      int turn = 0;
      for (size_t count : {1, 2, 5, 16}) {
        for (size_t chunk : {1, 7, 64, 2048}) {
          // Every count and chunk with every instruction set; the thread counts take turns.
          if (turn++ % 3 != threads - 1) continue;
          SCOPED_TRACE(fmt::format("{}, {} threads, {} rows, chunks of {}", kernels->name, threads,
                                   count, chunk));
          crowd.run(count, chunk);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(RowInvariance, ARowOfSeveralSegmentsAmongShortOnes) {
  rows_.erase(rows_.begin(), rows_.end() - 3);
  rows_.push_back(known(1050));  // keys are reduced by segments of 1024
  for (const Kernels* kernels : test::crowd_kernels()) {
    Cpu cpu(2, *kernels);
    const std::unique_ptr<Model> model = load(GetParam(), cpu);
    SCOPED_TRACE(kernels->name);
    Crowd(*model, cpu, rows_, random_).run(rows_.size(), 300);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowInvariance,
                         testing::Values(Case{"llama", true}, Case{"llama", false},
                                         Case{"gemma3", true}, Case{"gemma3", false},
                                         Case{"quantized/llama_q4_g32", true},
                                         Case{"quantized/llama_q4_g32", false}, Case{"", true},
                                         Case{"", false}));

}  // namespace
}  // namespace cohort::model
