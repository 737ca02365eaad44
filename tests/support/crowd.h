#pragma once

#include <cstdint>
#include <list>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "model/model.h"

namespace cohort::test {

/// A row of known ids, how it stores its tokens, and the logits that it has alone: [ids, vocab].
struct KnownRow {
  std::string name;  // for messages
  kv::RowPrecision precision;
  std::vector<int32_t> ids;
  std::vector<float> logits;
};

/// `length` ids that start with `begin` (not longer), random ones behind it.
std::vector<int32_t> random_ids(const model::Model& model, size_t length, std::mt19937& random,
                                std::span<const int32_t> begin = {});
/// Feeds the ids alone, in the longest appends that the precision allows.
KnownRow known_row(model::Model& model, kernels::cpu::Cpu& cpu, std::string name,
                   kv::RowPrecision precision, std::vector<int32_t> ids);

/// What else may happen in a crowd, beside forwards; at most so often each.
struct CrowdEvents {
  size_t repeats = 0;  // a forward is not committed, but made again
  size_t cuts = 0;     // a row is cut back to where that is allowed
  size_t clones = 0;   // a clone is taken, and both go on
  size_t turns = 0;    // seen only: cuts and clones after which other tokens came
  size_t changes = 0;  // seen only: of precision

  CrowdEvents& operator+=(const CrowdEvents& more);
};

/// Rows that are fed side by side: random ones in every forward, chunks of a prompt and single
/// tokens, until all have come to their ends. A row that is cut or cloned goes on as any known row
/// that begins with what it has. Asserts that logits are those of the rows alone, and that no block
/// of memory is lost.
class Crowd {
 public:
  /// All references outlive the crowd.
  Crowd(model::Model& model, kernels::cpu::Cpu& cpu, const std::vector<KnownRow>& rows,
        std::mt19937& random)
      : model_(model), cpu_(cpu), rows_(rows), random_(random), memory_(model.shape().layers) {}

  /// With `count` of the rows, those first that were in no run yet.
  void run(size_t count, size_t chunk, CrowdEvents events = {});
  /// What happened in all runs.
  const CrowdEvents& seen() const { return seen_; }

 private:
  /// Its first `prompt` tokens come in chunks, the others one by one.
  struct Walker {
    const KnownRow* known;
    size_t prompt;
    kv::RowCache cache;

    size_t at() const { return static_cast<size_t>(cache.offset()); }
    size_t left() const { return known->ids.size() - at(); }
    size_t step(size_t chunk) const;
  };

  Walker walker(const KnownRow* row, kv::RowCache cache);
  const KnownRow* next_row();
  std::vector<Walker*> some();
  void feed(const std::vector<Walker*>& moving, size_t chunk);
  void expect_known(const Walker& walker, size_t position, const float* logits);
  void commit(Walker& walker, size_t tokens);
  void disturb(Walker& walker);
  const KnownRow* any_continuation(const Walker& walker);
  void check_memory();
  bool draw(size_t& budget);

  model::Model& model_;
  kernels::cpu::Cpu& cpu_;
  const std::vector<KnownRow>& rows_;
  std::mt19937& random_;
  kv::KvMemory memory_;
  std::vector<const KnownRow*> order_;
  size_t taken_ = 0;  // rows, by all runs
  std::list<Walker> walkers_;
  CrowdEvents left_, seen_;
};

}  // namespace cohort::test
