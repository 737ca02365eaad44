// Requests choose how their keys and values are stored, and get the answers that they get alone.

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/json.h"
#include "base/mapped_file.h"
#include "serving/model_binding.h"
#include "tests/support/answers.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/random_data.h"

namespace cohort::engine {
namespace {

using kv::KvScheme;
using serving::BindingOptions;
using serving::ModelBinding;
using test::Answer;
using test::collect;
using test::eventually;

const std::string kGolden = std::string(COHORT_GOLDENS) + "/llama";  // heads of 16
constexpr int kVocab = 327;                                          // of its tokenizer

/// A model with heads of 64, and the tokenizer of a golden one.
class KvQuant : public testing::Test {
 protected:
  KvQuant() {
    test::RandomCheckpoint({.vocab = kVocab}).write(folder_);
    std::filesystem::copy_file(kGolden + "/tokenizer.json", folder_ + "/tokenizer.json");
  }
  ~KvQuant() override { std::filesystem::remove_all(folder_); }

  BindingOptions options() const {
    return {.path = folder_,
            .names = {"random"},
            .threads = 2,
            .kv_by_request = true,
            .prompt_cache_bytes = 0};  // so that all memory comes back
  }

 private:
  const std::string folder_ =
      (std::filesystem::temp_directory_path() / ("cohort_kv_quant_" + std::to_string(::getpid())))
          .string();
};

Request request(const std::string& kv_quant, size_t prompt, int64_t max_tokens) {
  Request made{.max_tokens = max_tokens, .ignore_eos = true, .kv_quant = kv_quant};
  for (uint8_t byte : test::random_bytes(prompt, static_cast<uint32_t>(prompt))) {
    made.prompt.push_back(byte);
  }
  made.sampling = {.temperature = 1.0f, .seed = prompt};
  return made;
}

/// Prompts that end before, at and after the changes of precision that the tests choose.
std::vector<Request> unlike_requests() {
  return {request("", 3, 70),         request("off", 64, 30),        request("8", 40, 40),
          request("4", 129, 20),      request("turbo", 65, 70),      request("turbo:k4v3", 131, 10),
          request("config", 100, 40), request("turbo:k2v2", 63, 40), request("turbo:k5v5", 200, 5)};
}

TEST_F(KvQuant, RequestsOfUnlikeStorageAnswerAsTheyDoAlone) {
  const std::vector<Request> requests = unlike_requests();
  for (int64_t start : {0, 5, 65, 130}) {
    BindingOptions options = this->options();
    options.kv = {.kind = KvScheme::Kind::kUniform, .layers = {{1, 4, 64}}, .start = start};
    std::vector<Answer> solo;
    {
      ModelBinding binding(options);
      for (const Request& each : requests) solo.push_back(collect(*binding.submit(each)));
    }
    for (const SchedulerLimits& limits : {SchedulerLimits{37, 5}, SchedulerLimits{301, 64}}) {
      options.engine.budget = {.alone_tokens = limits.prefill_tokens,
                               .mixed_tokens = limits.mixed_tokens};
      ModelBinding binding(options);
      std::vector<std::shared_ptr<Stream>> streams;
      for (const Request& each : requests) streams.push_back(binding.submit(each));
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(fmt::format("start {}, budget {}, kv_quant \"{}\"", start,
                                 limits.prefill_tokens, requests[i].kv_quant));
        const Answer got = collect(*streams[i]);
        EXPECT_EQ(got.ids.size(), static_cast<size_t>(*requests[i].max_tokens));
        EXPECT_EQ(got.ids, solo[i].ids);
        EXPECT_EQ(got.text, solo[i].text);
      }
      EXPECT_EQ(binding.stats().failed_forwards, 0U);
      EXPECT_TRUE(eventually([&] { return binding.stats().kv_used_bytes == 0; }));
    }
  }
}

TEST_F(KvQuant, WhatARequestChoosesDecidesItsAnswer) {
  ModelBinding binding(options());
  std::set<std::vector<int32_t>> answers;
  const std::vector<std::string> words{"off", "4", "turbo:k4v3", "turbo:k2v2"};
  for (const std::string& kv_quant : words) {
    answers.insert(collect(*binding.submit(request(kv_quant, 100, 100))).ids);
  }
  EXPECT_EQ(answers.size(), words.size()) << "coarse codes change a long answer";
  EXPECT_EQ(collect(*binding.submit(request("", 100, 100))).ids,
            collect(*binding.submit(request("off", 100, 100))).ids);
}

/// What submitting or loading throws.
template <class F>
Error refusal(const F& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return {ErrorKind::kInternal, ""};
}

TEST_F(KvQuant, ARequestMayNotChooseUnlessTheServerLetsIt) {
  BindingOptions options = this->options();
  options.kv_by_request = false;
  ModelBinding binding(options);
  const Error error = refusal([&] { binding.submit(request("8", 5, 1)); });
  EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(error.param(), "kv_quant");
  EXPECT_EQ(collect(*binding.submit(request("", 5, 1))).ids.size(), 1U);
}

TEST_F(KvQuant, ARequestForWhatThereIsNotIsRefused) {
  ModelBinding binding(options());
  EXPECT_EQ(refusal([&] { binding.submit(request("9", 5, 1)); }).kind(),
            ErrorKind::kInvalidRequest);
  const Error config = refusal([&] { binding.submit(request("config", 5, 1)); });
  EXPECT_EQ(config.kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(config.param(), "kv_quant");
}

TEST(KvQuantAtStart, HeadsThatTheSchemeCannotHoldAreRefusedWithTheReason) {
  using Kind = KvScheme::Kind;
  const std::pair<KvScheme, std::string> refused[] = {
      {{.kind = Kind::kUniform}, "a head dimension of 16 is no multiple of groups of 64"},
      {{.kind = Kind::kUniform, .start = 9}, "is no multiple of groups of 64"},
      {{.kind = Kind::kTurbo}, "a head dimension of 16; supported: 64, 128, 256, 512"},
      {{.kind = Kind::kConfig, .layers = {{2, 8, 48}}}, "layer 2: groups of 48; supported: 32, 64"},
      {{.kind = Kind::kConfig, .layers = {{4, 8, 64}}}, "the model has 4 layers"},
  };
  for (const auto& [scheme, reason] : refused) {
    const BindingOptions options{.path = kGolden, .names = {"llama"}, .threads = 1, .kv = scheme};
    const Error error = refusal([&] { ModelBinding binding(options); });
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_EQ(error.param(), "kv_quant");
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST_F(KvQuant, WhatTheModelCannotDoIsSaidBeforeItsWeightsAreRead) {
  BindingOptions options = this->options();
  const std::string config = options.path + "/config.json";
  const MappedFile file(config);
  boost::json::value edited =
      parse_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, config);
  edited.as_object()["num_hidden_layers"] = 9;  // more than there are weights of
  std::filesystem::remove(config);
  std::ofstream(config) << boost::json::serialize(edited);
  EXPECT_NE(std::string(refusal([&] { ModelBinding binding(options); }).what()).find("missing"),
            std::string::npos);
  options.kv = {.kind = KvScheme::Kind::kConfig, .layers = {{99, 8, 64}}};
  EXPECT_EQ(refusal([&] { ModelBinding binding(options); }).param(), "kv_quant");
  options.kv = {};
  options.context_tokens = 1 << 30;
  const Error context = refusal([&] { ModelBinding binding(options); });
  EXPECT_TRUE(std::string(context.what()).starts_with("a context of 1073741824 tokens is more"));
}

TEST_F(KvQuant, RequestsThatShareLittleMemoryTakeTurnsAndLoseNoBit) {
  BindingOptions options = this->options();
  const std::vector<Request> all{request("off", 70, 90), request("off", 30, 500),
                                 request("off", 3, 550), request("off", 550, 60),
                                 request("off", 200, 150)};
  std::vector<Answer> alone;
  {
    ModelBinding binding(options);
    for (const Request& each : all) alone.push_back(collect(*binding.submit(each)));
  }
  options.engine.kv_memory_bytes = size_t{1} << 20;  // 640 tokens in bf16
  options.engine.budget = {.alone_tokens = 97, .mixed_tokens = 31};
  ModelBinding binding(options);
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<std::shared_ptr<Stream>> streams;
    for (const Request& each : all) streams.push_back(binding.submit(each));
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(collect(*streams[i]).ids, alone[i].ids);
    EXPECT_TRUE(eventually([&] { return binding.stats().kv_used_bytes == 0; }));
  }
  EXPECT_GT(binding.stats().preemptions, 0U);
  for (const Request& each : {request("off", 900, 5), request("off", 30, 900)}) {
    try {
      binding.submit(each);
      ADD_FAILURE() << "could never be held";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kTooLarge);
    }
  }
}

}  // namespace
}  // namespace cohort::engine
