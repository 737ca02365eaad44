// A row's logits are the same bits alone and in any crowd, chunking, instruction set and thread
// count.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <random>

#include "kv/scheme.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "tests/support/random_data.h"

namespace cohort::model {
namespace {

using kernels::cpu::available_kernels;
using kernels::cpu::Cpu;
using kernels::cpu::Kernels;

/// How a block format keeps its 16-bit scales: where, and what gives weights of about 0.05.
struct BlockScales {
  TensorType type;
  int scale_at;
  float scale;
  int min_at;  // -1: none
  float min;
};
constexpr BlockScales kBlockScales[] = {
    {TensorType::kQ4_0, 0, 0.01f, -1, 0},        {TensorType::kQ4_1, 0, 0.01f, 2, -0.08f},
    {TensorType::kQ5_0, 0, 0.005f, -1, 0},       {TensorType::kQ5_1, 0, 0.005f, 2, -0.08f},
    {TensorType::kQ8_0, 0, 0.0006f, -1, 0},      {TensorType::kQ4_K, 0, 0.0002f, 2, 0.0015f},
    {TensorType::kQ5_K, 0, 0.0001f, 2, 0.0015f}, {TensorType::kQ6_K, 208, 0.00003f, -1, 0},
};

/// A llama of one layer whose matrices are random blocks, every GGUF format once or twice.
class BlockCheckpoint {
 public:
  BlockCheckpoint() {
    opened.path = "blocks";
    opened.config = {{"model_type", "llama"},
                     {"hidden_size", 256},
                     {"intermediate_size", 256},
                     {"num_hidden_layers", 1},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"head_dim", 64},
                     {"vocab_size", 40},
                     {"max_position_embeddings", 2048},
                     {"tie_word_embeddings", false}};
    add_matrix("model.embed_tokens", 40);
    const std::string layer = "model.layers.0.";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add_norm(layer + norm);
    for (const char* wide : {"self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
                             "mlp.down_proj"}) {
      add_matrix(layer + wide, 256);
    }
    for (const char* narrow : {"self_attn.k_proj", "self_attn.v_proj"}) {
      add_matrix(layer + narrow, 128);
    }
    add_norm("model.norm");
    add_matrix("lm_head", 40);
    std::ranges::sort(opened.tensors, {}, &TensorView::name);
  }

  Checkpoint opened;

 private:
  void add(const std::string& name, TensorType type, std::vector<int64_t> shape,
           std::vector<std::byte> bytes) {
    storage_.push_back(std::move(bytes));
    opened.tensors.push_back({name + ".weight", type, std::move(shape), storage_.back()});
  }

  void add_norm(const std::string& name) {
    const std::vector<float> ones(256, 1.0f);
    std::vector<std::byte> bytes(ones.size() * sizeof(float));
    std::memcpy(bytes.data(), ones.data(), bytes.size());
    add(name, TensorType::kF32, {256}, std::move(bytes));
  }

  void add_matrix(const std::string& name, int64_t rows) {
    const BlockScales& format = kBlockScales[matrices_++ % std::size(kBlockScales)];
    const std::vector<int64_t> shape{rows, 256};
    const auto size = static_cast<size_t>(stored_bytes(format.type, shape).value());
    const std::vector<uint8_t> random = test::random_bytes(size, matrices_);
    std::vector<std::byte> bytes(size);
    std::memcpy(bytes.data(), random.data(), size);
    const auto block = static_cast<size_t>(info(format.type).block_bytes);
    for (size_t at = 0; at < size; at += block) {
      put_half(bytes.data() + at, format.scale_at, format.scale);
      put_half(bytes.data() + at, format.min_at, format.min);
    }
    add(name, format.type, shape, std::move(bytes));
  }

  static void put_half(std::byte* block, int offset, float value) {
    if (offset < 0) return;
    const uint16_t bits = kernels::cpu::f32_to_f16(value);
    std::memcpy(block + offset, &bits, 2);
  }

  std::deque<std::vector<std::byte>> storage_;
  uint32_t matrices_ = 0;
};

struct Case {
  std::string folder;  // of the goldens; "" = random blocks
  bool exact;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << (c.folder.empty() ? "blocks" : c.folder) << (c.exact ? " exact" : " default");
}

std::unique_ptr<Model> load(const Case& c, Cpu& cpu) {
  if (c.folder.empty()) return load_model(BlockCheckpoint().opened, {.exact = c.exact}, cpu);
  const std::string path = std::string(COHORT_GOLDENS) + "/" + c.folder;
  return load_model(Checkpoint::open(path), {.exact = c.exact}, cpu);
}

/// A row with known ids, and the logits that it has alone: [ids, vocab].
struct KnownRow {
  std::vector<int32_t> ids;
  std::vector<float> logits;
};

/// A row in a crowd: its first `prompt` tokens come in chunks, the others one by one.
struct Walker {
  const KnownRow* known;
  size_t prompt;
  kv::RowCache cache;

  size_t at() const { return static_cast<size_t>(cache.offset()); }
  size_t left() const { return known->ids.size() - at(); }
  size_t step(size_t chunk) const { return at() < prompt ? std::min(chunk, prompt - at()) : 1; }
};

class RowInvariance : public testing::TestWithParam<Case> {
 protected:
  RowInvariance() : reference_(load(GetParam(), reference_cpu_)) {
    // Around the edges of blocks.
    for (size_t length : {1, 2, 3, 7, 8, 9, 20, 30, 40, 63, 64, 65, 66, 100, 128, 129}) {
      rows_.push_back(known(length));
    }
  }

  KnownRow known(size_t length) {
    KnownRow row;
    const auto vocab = static_cast<uint32_t>(reference_->shape().vocab_size);
    for (size_t i = 0; i < length; ++i) row.ids.push_back(static_cast<int32_t>(random_() % vocab));
    row.logits = alone(row.ids);
    return row;
  }

  kv::RowPrecision precision(const kv::KvMemory& memory) const {
    return kv::resolve({.dense_bf16 = !GetParam().exact}, memory.layers());
  }

  std::vector<float> alone(const std::vector<int32_t>& ids) {
    kv::KvMemory memory(reference_->shape().layers);
    kv::RowCache cache = memory.new_row(precision(memory));
    const TokenGroup group{ids, cache};
    std::vector<int32_t> all(ids.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    mx::array y = reference_->project(reference_->forward({&group, 1}, nullptr), all);
    y.eval();
    return {y.data<float>(), y.data<float>() + y.size()};
  }

  /// Feeds the rows to their ends, some of them in each forward; compares logits as they come.
  void crowd(Model& model, const std::vector<const KnownRow*>& rows, size_t chunk) {
    kv::KvMemory memory(model.shape().layers);
    std::list<Walker> walkers;
    for (const KnownRow* row : rows) {
      walkers.push_back({row, row->ids.size() - random_() % 9 % row->ids.size(),
                         memory.new_row(precision(memory))});
    }
    while (!walkers.empty()) {
      std::vector<Walker*> moving;
      for (Walker& walker : walkers) {
        if (random_() % 3 != 0) moving.push_back(&walker);
      }
      if (moving.empty()) moving.push_back(&walkers.front());
      std::shuffle(moving.begin(), moving.end(), random_);
      forward(model, moving, chunk);
      if (HasFatalFailure()) return;
      std::erase_if(walkers, [](const Walker& walker) { return walker.left() == 0; });
    }
  }

  void forward(Model& model, const std::vector<Walker*>& moving, size_t chunk) {
    std::vector<TokenGroup> groups;
    std::vector<int32_t> asked;                           // positions in the pack
    std::vector<std::pair<const Walker*, size_t>> whose;  // of the asked ones: row, position there
    int32_t packed = 0;
    for (Walker* walker : moving) {
      const size_t count = walker->step(chunk);
      groups.push_back({std::span(walker->known->ids).subspan(walker->at(), count), walker->cache});
      for (size_t i = 0; i < count; ++i, ++packed) {
        if (i + 1 < count && random_() % 4 != 0) continue;
        asked.push_back(packed);
        whose.emplace_back(walker, walker->at() + i);
      }
    }
    mx::array y = model.project(model.forward(groups, nullptr), asked);
    y.eval();
    const auto vocab = static_cast<size_t>(model.shape().vocab_size);
    for (size_t i = 0; i < whose.size(); ++i) {
      const auto& [walker, position] = whose[i];
      ASSERT_EQ(0,
                std::memcmp(y.data<float>() + i * vocab,
                            walker->known->logits.data() + position * vocab, vocab * sizeof(float)))
          << "row of " << walker->known->ids.size() << " tokens, position " << position << ", "
          << moving.size() << " rows and " << packed << " tokens in the forward";
    }
    for (size_t i = 0; i < moving.size(); ++i) {
      moving[i]->cache.commit(static_cast<int64_t>(groups[i].ids.size()));
    }
  }

  std::vector<const KnownRow*> pick(size_t count) {
    std::vector<const KnownRow*> picked;
    for (const KnownRow& row : rows_) picked.push_back(&row);
    std::shuffle(picked.begin(), picked.end(), random_);
    picked.resize(count);
    return picked;
  }

  std::mt19937 random_{20260101};
  Cpu reference_cpu_{1};
  std::unique_ptr<Model> reference_;
  std::vector<KnownRow> rows_;
};

TEST_P(RowInvariance, LogitsAreTheBitsOfTheRowAlone) {
  for (const Kernels* kernels : available_kernels()) {
    for (int threads : {1, 2, 3}) {
      Cpu cpu(threads, *kernels);
      const std::unique_ptr<Model> model = load(GetParam(), cpu);
      int turn = 0;
      for (size_t count : {1, 2, 5, 16}) {
        for (size_t chunk : {1, 7, 64, 2048}) {
          // Every count and chunk with every instruction set; the thread counts take turns.
          if (turn++ % 3 != threads - 1) continue;
          SCOPED_TRACE(fmt::format("{}, {} threads, {} rows, chunks of {}", kernels->name, threads,
                                   count, chunk));
          crowd(*model, pick(count), chunk);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(RowInvariance, ARowOfSeveralSegmentsAmongShortOnes) {
  const KnownRow row = known(1050);  // keys are reduced by segments of 1024
  for (const Kernels* kernels : available_kernels()) {
    Cpu cpu(2, *kernels);
    const std::unique_ptr<Model> model = load(GetParam(), cpu);
    std::vector<const KnownRow*> rows = pick(3);
    rows.push_back(&row);
    SCOPED_TRACE(kernels->name);
    crowd(*model, rows, 300);
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
