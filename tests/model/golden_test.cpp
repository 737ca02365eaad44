// Logits, hidden states and greedy ids against what transformers computes (tests/goldens).

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "kernels/device.h"
#include "kv/scheme.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "tests/support/tensors.h"

namespace cohort::model {
namespace {

struct GoldenCase {
  std::string folder;
  std::string config;
  Device device = Device::kCpu;
};

void PrintTo(const GoldenCase& c, std::ostream* out) {
  *out << c.folder << " " << c.config << (c.device == Device::kCpu ? "" : " in plain ops");
}

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  Golden()
      : path_(std::string(COHORT_GOLDENS) + "/" + GetParam().folder),
        model_(load_model(Checkpoint::open(path_, GetParam().config),
                          {.exact = true, .device = GetParam().device}, cpu_)),
        memory_(model_->shape().layers, SIZE_MAX, model_->block_copy()),
        golden_(path_ + "/golden.safetensors") {
    ::setenv("MLX_ENABLE_TF32", "0", 1);  // as --exact does
    kernels::use(GetParam().device);
  }
  ~Golden() override { kernels::use(Device::kCpu); }

  kv::RowCache new_row() {
    return memory_.new_row(kv::resolve({.dense_bf16 = false}, memory_.layers()));
  }

  /// Logits of all positions of one row fed `chunk` tokens at a time.
  std::vector<float> logits(const std::vector<int32_t>& ids, int chunk) {
    kv::RowCache cache = new_row();
    std::vector<float> out;
    for (size_t at = 0; at < ids.size(); at += static_cast<size_t>(chunk)) {
      const size_t count = std::min(static_cast<size_t>(chunk), ids.size() - at);
      const TokenGroup group{std::span(ids).subspan(at, count), cache};
      const mx::array h = model_->forward({&group, 1}, nullptr);
      std::vector<int32_t> rows;
      for (size_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(i));
      mx::array y = model_->project(h, rows);
      y.eval();
      out.insert(out.end(), y.data<float>(), y.data<float>() + y.size());
      cache.commit(static_cast<int64_t>(count));
    }
    return out;
  }

  /// The embeddings and the output of every layer.
  std::vector<std::vector<float>> hidden_states(const std::vector<int32_t>& ids) {
    kv::RowCache cache = new_row();
    const TokenGroup group{ids, cache};
    std::vector<mx::array> layers;
    model_->forward({&group, 1}, &layers);
    mx::eval(layers);
    std::vector<std::vector<float>> out;
    for (mx::array& layer : layers) {
      out.emplace_back(layer.data<float>(), layer.data<float>() + layer.size());
    }
    return out;
  }

  std::vector<int32_t> greedy(std::vector<int32_t> ids, size_t steps) {
    const size_t prompt = ids.size();
    kv::RowCache cache = new_row();
    while (ids.size() < prompt + steps) {
      const auto offset = static_cast<size_t>(cache.offset());
      const TokenGroup group{std::span(ids).subspan(offset), cache};
      const auto last = static_cast<int32_t>(group.ids.size()) - 1;
      mx::array y = model_->project(model_->forward({&group, 1}, nullptr), {last});
      y.eval();
      cache.commit(last + 1);
      ids.push_back(static_cast<int32_t>(
          cpu_.kernels().argmax(y.data<float>(), static_cast<int64_t>(y.size()))));
    }
    return {ids.begin() + static_cast<ptrdiff_t>(prompt), ids.end()};
  }

  std::string path_;
  kernels::cpu::Cpu cpu_{2};
  std::unique_ptr<Model> model_;
  kv::KvMemory memory_;
  test::Tensors golden_;
};

class ExactGolden : public Golden {};   // on a device where rows are invariant
class LongGolden : public Golden {};    // with a prompt of several blocks
class HiddenGolden : public Golden {};  // with the output of every layer

void expect_close(const std::vector<float>& got, const std::vector<float>& want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  float worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
  EXPECT_LE(worst, tolerance);
}

TEST_P(Golden, LogitsAndGreedyIdsOfEveryPrompt) {
  for (const std::string prompt : {"main", "batch_a", "batch_b"}) {
    if (!golden_.has(prompt + ".input_ids")) continue;
    const auto ids = golden_.ints(prompt + ".input_ids");
    auto got = logits(ids, 64);
    const auto want = golden_.floats(prompt + ".logits");
    if (want.size() < got.size())
      got.erase(got.begin(), got.end() - static_cast<ptrdiff_t>(want.size()));
    expect_close(got, want, 1e-3f);
    if (!golden_.has(prompt + ".greedy_ids")) continue;
    const auto want_ids = golden_.ints(prompt + ".greedy_ids");
    EXPECT_EQ(greedy(ids, want_ids.size()), want_ids) << prompt;
  }
}

TEST_P(LongGolden, LongPromptAtItsRecordedPositions) {
  const auto got = logits(golden_.ints("long.input_ids"), 100);
  const auto positions = golden_.ints("long.positions");
  const size_t vocab = static_cast<size_t>(model_->shape().vocab_size);
  std::vector<float> picked;
  for (int32_t p : positions) {
    picked.insert(picked.end(), got.begin() + static_cast<ptrdiff_t>(p * vocab),
                  got.begin() + static_cast<ptrdiff_t>((p + 1) * vocab));
  }
  expect_close(picked, golden_.floats("long.logits"), 1e-3f);
}

TEST_P(HiddenGolden, HiddenStatesOfEveryLayer) {
  const auto hidden = hidden_states(golden_.ints("main.input_ids"));
  expect_close(hidden[0], golden_.floats("main.hidden.embed"), 1e-5f);
  for (size_t layer = 0; layer + 1 < hidden.size(); ++layer) {
    const std::string name = fmt::format("main.hidden.layer_{:02}", layer);
    expect_close(hidden[layer + 1], golden_.floats(name), 1e-3f);
  }
}

TEST_P(ExactGolden, ChunkingChangesNoBit) {
  const auto ids = golden_.ints("main.input_ids");
  const auto want = logits(ids, 1);
  for (int chunk : {7, 64, 2048}) EXPECT_EQ(logits(ids, chunk), want) << chunk;
}

const GoldenCase kLongCases[] = {{"llama", "config.json"},       {"llama", "config_hub.json"},
                                 {"llama_bf16", "config.json"},  {"llama_bf16", "config_hub.json"},
                                 {"llama_rope3", "config.json"}, {"llama_rope3", "config_hub.json"},
                                 {"llama_yarn", "config.json"},  {"llama_yarn", "config_hub.json"},
                                 {"gemma3", "config.json"},      {"gemma3", "config_hub.json"}};
const GoldenCase kHiddenCases[] = {{"llama", "config.json"}, {"gemma3", "config.json"}};

const GoldenCase kQuantizedCases[] = {{"quantized/llama_q4_g32", "config.json"},
                                      {"quantized/llama_q4_g64", "config.json"},
                                      {"quantized/llama_q8_g64", "config.json"}};

/// The same in plain ops: here, and on the GPU of a machine that has one.
template <size_t n>
std::vector<GoldenCase> in_plain_ops(const GoldenCase (&cases)[n]) {
  std::vector<GoldenCase> all;
  for (const Device device : {Device::kPlain, Device::kGpu}) {
    if (device == Device::kGpu && !mx::is_available(mx::Device::gpu)) continue;
    for (const GoldenCase& c : cases) all.push_back({c.folder, c.config, device});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Dense, Golden, testing::ValuesIn(kLongCases));
INSTANTIATE_TEST_SUITE_P(Dense, ExactGolden, testing::ValuesIn(kLongCases));
INSTANTIATE_TEST_SUITE_P(Dense, LongGolden, testing::ValuesIn(kLongCases));
INSTANTIATE_TEST_SUITE_P(Dense, HiddenGolden, testing::ValuesIn(kHiddenCases));
INSTANTIATE_TEST_SUITE_P(Quantized, Golden, testing::ValuesIn(kQuantizedCases));
INSTANTIATE_TEST_SUITE_P(Quantized, ExactGolden, testing::ValuesIn(kQuantizedCases));
INSTANTIATE_TEST_SUITE_P(Plain, Golden, testing::ValuesIn(in_plain_ops(kLongCases)));
INSTANTIATE_TEST_SUITE_P(Plain, LongGolden, testing::ValuesIn(in_plain_ops(kLongCases)));
INSTANTIATE_TEST_SUITE_P(Plain, HiddenGolden, testing::ValuesIn(in_plain_ops(kHiddenCases)));
INSTANTIATE_TEST_SUITE_P(PlainQuantized, Golden, testing::ValuesIn(in_plain_ops(kQuantizedCases)));

}  // namespace
}  // namespace cohort::model
