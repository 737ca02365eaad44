// An answer that goes on from a checkpoint is the answer that was never interrupted, and nobody
// goes on with another's.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "serving/model_binding.h"
#include "tests/support/answers.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/random_data.h"

namespace cohort::engine {
namespace {

using serving::BindingOptions;
using serving::ModelBinding;
using test::Answer;
using test::collect;
using test::eventually;
namespace fs = std::filesystem;

constexpr int kVocab = 327;  // of the golden tokenizer
constexpr int64_t kTokens = 150;
constexpr size_t kProduced = Stream::kCapacity;  // until a row waits for its reader

struct Told {
  Answer answer;
  std::vector<std::string> pieces;  // of its text, by token
  uint64_t seed = 0;
  size_t cached = 0;
  uint64_t resumed = 0, generated = 0;  // of its server
};

class GenerationCheckpoint : public testing::TestWithParam<std::string> {
 protected:
  GenerationCheckpoint() {
    test::RandomCheckpoint({.family = GetParam(), .vocab = kVocab}).write(model_);
    fs::copy_file(std::string(COHORT_GOLDENS) + "/llama/tokenizer.json", model_ / "tokenizer.json");
  }
  ~GenerationCheckpoint() override { fs::remove_all(root_); }

  BindingOptions options(const fs::path& cache, int64_t every) const {
    BindingOptions options{.path = model_.string(), .names = {"random"}, .threads = 2};
    options.engine.generation_checkpoint = every;
    options.ssd.folder = cache;
    return options;
  }

  static Request request(size_t prompt, bool sampled = true) {
    Request request{.id = "mine", .own_id = true, .max_tokens = kTokens, .ignore_eos = true};
    for (uint8_t byte : test::random_bytes(prompt, 7)) request.prompt.push_back(byte);
    request.sampling = {.temperature = sampled ? 1.0f : 0.0f, .seed = 5};
    if (sampled) request.sampling.repetition_penalty = 1.3f;
    if (sampled) request.sampling.frequency_penalty = 0.5f;
    return request;
  }

  static Told ask(ModelBinding& binding, Request request) {
    const std::shared_ptr<Stream> stream = binding.submit(std::move(request));
    Told told{.seed = stream->seed()};
    while (!told.answer.finish) {
      std::vector<TokenEvent> events = stream->wait();
      for (const TokenEvent& event : events) told.pieces.push_back(event.text);
      told.answer.take(std::move(events));
    }
    told.cached = stream->cached_tokens();
    told.resumed = binding.stats().resumed_answers;
    told.generated = binding.stats().generated_tokens;
    return told;
  }
  Told ask(Request request) {
    ModelBinding binding(options("", 0));
    return ask(binding, std::move(request));
  }

  /// The answer up to where nobody reads on, with its checkpoints on SSD.
  ///   returns  the seed
  static uint64_t begin(ModelBinding& binding, const Request& request) {
    const std::shared_ptr<Stream> stream = binding.submit(request);
    // What was replayed is one event.
    EXPECT_TRUE(eventually([&] {
      return binding.stats().generated_tokens + binding.stats().resumed_answers == kProduced;
    }));
    stream->cancel();
    EXPECT_TRUE(eventually([&] { return binding.stats().rows == 0; }));
    EXPECT_TRUE(binding.flush_ssd(std::chrono::seconds(20)));
    return stream->seed();
  }
  uint64_t begin(const fs::path& cache, int64_t every, const Request& request) {
    ModelBinding binding(options(cache, every));
    return begin(binding, request);
  }

  fs::path new_cache() { return root_ / ("cache" + std::to_string(++caches_)); }
  fs::path copy_of(const fs::path& cache) {
    const fs::path copy = new_cache();
    fs::copy(cache, copy, fs::copy_options::recursive);
    return copy;
  }
  static std::vector<fs::path> files(const fs::path& cache) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(cache)) {
      if (entry.path().extension() == ".kv") found.push_back(entry.path());
    }
    return found;
  }

 private:
  const fs::path root_ =
      fs::temp_directory_path() / ("cohort_generation_" + std::to_string(::getpid()));
  int caches_ = 0;

 protected:
  const fs::path model_ = root_ / "model";
};

TEST_P(GenerationCheckpoint, AResumedAnswerIsTheUninterruptedOne) {
  for (const size_t prompt : {1, 100, 300}) {
    for (const bool sampled : {false, true}) {
      const Request asked = request(prompt, sampled);
      const Told whole = ask(asked);
      for (const int64_t every : {1, 10, 60, 64}) {
        SCOPED_TRACE(fmt::format("{} tokens, sampled {}, every {}", prompt, sampled, every));
        const fs::path cache = new_cache();
        begin(cache, every, asked);
        ModelBinding binding(options(cache, every));
        const Told resumed = ask(binding, asked);
        EXPECT_EQ(resumed.answer.ids, whole.answer.ids);
        EXPECT_EQ(resumed.answer.text, whole.answer.text);
        EXPECT_EQ(resumed.answer.finish, FinishReason::kLength);
        EXPECT_EQ(resumed.cached, prompt);
        EXPECT_EQ(resumed.resumed, 1U);
        const auto replayed = static_cast<int64_t>(kProduced) / every * every;
        EXPECT_EQ(resumed.generated, static_cast<uint64_t>(kTokens - replayed));
        EXPECT_EQ(binding.stats().cached_tokens, prompt);
        // It has ended: who asks again is answered anew, from the row that was kept.
        EXPECT_TRUE(binding.flush_ssd(std::chrono::seconds(20)));
        EXPECT_EQ(ask(binding, asked).resumed, 1U);
      }
    }
  }
}

TEST_P(GenerationCheckpoint, AnAnswerMayBeInterruptedAgainAndAgain) {
  Request asked = request(70);
  const Told whole = ask(asked);
  const fs::path cache = new_cache();
  begin(cache, 50, asked);
  {
    ModelBinding binding(options(cache, 50));
    begin(binding, asked);
    EXPECT_EQ(binding.stats().resumed_answers, 1U);
  }
  ModelBinding binding(options(cache, 50));
  const Told resumed = ask(binding, asked);
  EXPECT_EQ(resumed.answer.ids, whole.answer.ids);
  EXPECT_EQ(resumed.answer.text, whole.answer.text);
  EXPECT_EQ(resumed.generated, static_cast<uint64_t>(kTokens - 100));
}

TEST_P(GenerationCheckpoint, AStopStringAcrossTheCheckpointIsSeen) {
  Request asked = request(100);
  const Told unstopped = ask(asked);
  std::string stop;
  for (size_t i = 57; i < kProduced + 3; ++i) stop += unstopped.pieces[i];
  asked.stop = {stop};
  const Told whole = ask(asked);
  ASSERT_EQ(whole.answer.finish, FinishReason::kStop);
  ASSERT_GT(whole.answer.ids.size(), kProduced);
  const fs::path cache = new_cache();
  begin(cache, 60, asked);
  ModelBinding binding(options(cache, 60));
  const Told resumed = ask(binding, asked);
  EXPECT_EQ(resumed.resumed, 1U);
  EXPECT_EQ(resumed.answer.finish, FinishReason::kStop);
  EXPECT_EQ(resumed.answer.ids, whole.answer.ids);
  EXPECT_EQ(resumed.answer.text, whole.answer.text);
}

TEST_P(GenerationCheckpoint, WithoutASeedTheFirstOneGoesOn) {
  Request asked = request(100);
  asked.sampling.seed.reset();
  const fs::path cache = new_cache();
  const uint64_t seed = begin(cache, 20, asked);
  ModelBinding binding(options(cache, 20));
  const Told resumed = ask(binding, asked);
  EXPECT_EQ(resumed.seed, seed);
  EXPECT_EQ(resumed.resumed, 1U);
  asked.sampling.seed = seed;
  EXPECT_EQ(resumed.answer.ids, ask(asked).answer.ids);
}

TEST_P(GenerationCheckpoint, AnAnswerThatMayBeNoLongerEndsInWhatIsKnown) {
  Request asked = request(100);
  asked.max_tokens.reset();
  const fs::path cache = new_cache();
  begin(cache, 60, asked);
  BindingOptions shorter = options(cache, 60);
  shorter.max_tokens = 30;
  ModelBinding binding(shorter);
  const Told resumed = ask(binding, asked);
  asked.max_tokens = 30;
  const Told whole = ask(asked);
  EXPECT_EQ(resumed.answer.ids, whole.answer.ids);
  EXPECT_EQ(resumed.answer.text, whole.answer.text);
  EXPECT_EQ(resumed.answer.finish, FinishReason::kLength);
  EXPECT_EQ(resumed.generated, 0U);
}

TEST_P(GenerationCheckpoint, AnotherRequestIsAnsweredAnew) {
  const fs::path cache = new_cache();
  begin(cache, 20, request(100));
  using Change = std::function<void(Request&)>;
  const std::pair<const char*, Change> changes[] = {
      {"id", [](Request& r) { r.id = "another"; }},
      {"no id", [](Request& r) { r.own_id = false; }},
      {"client", [](Request& r) { r.client = "0123456789abcdef"; }},
      {"prompt", [](Request& r) { r.prompt.back() ^= 1; }},
      {"max_tokens", [](Request& r) { *r.max_tokens += 1; }},
      {"salt", [](Request& r) { r.cache_salt = "s"; }},
      {"seed", [](Request& r) { r.sampling.seed = 6; }},
      {"no seed", [](Request& r) { r.sampling.seed.reset(); }},
      {"temperature", [](Request& r) { r.sampling.temperature = 0.9f; }},
      {"top_p", [](Request& r) { r.sampling.top_p = 0.9f; }},
      {"top_k", [](Request& r) { r.sampling.top_k = 9; }},
      {"min_p", [](Request& r) { r.sampling.min_p = 0.01f; }},
      {"repetition", [](Request& r) { r.sampling.repetition_penalty = 1.4f; }},
      {"presence", [](Request& r) { r.sampling.presence_penalty = 0.5f; }},
      {"frequency", [](Request& r) { r.sampling.frequency_penalty = 0.4f; }},
      {"bias", [](Request& r) { r.sampling.logit_bias = {{3, 1.0f}}; }},
      {"stop", [](Request& r) { r.stop = {"stop"}; }},
      {"eos", [](Request& r) { r.ignore_eos = false; }},
      {"choices", [](Request& r) { r.choices = 2; }},
      {"logprobs", [](Request& r) { r.top_logprobs = 1; }},
      {"no cache", [](Request& r) { r.cache_prompt = false; }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    Request asked = request(100);
    change(asked);
    ModelBinding binding(options(copy_of(cache), 20));
    const std::shared_ptr<Stream> stream = binding.submit(asked);
    EXPECT_TRUE(eventually([&] { return binding.stats().generated_tokens > 0; }));
    EXPECT_EQ(binding.stats().resumed_answers, 0U);
    stream->cancel();
  }
  ModelBinding binding(options(copy_of(cache), 20));
  EXPECT_EQ(ask(binding, request(100)).resumed, 1U);
}

TEST_P(GenerationCheckpoint, WhatIsLostOrDamagedIsComputedAgain) {
  const Request asked = request(100);
  const Told whole = ask(asked);
  const fs::path cache = new_cache();
  begin(cache, 60, asked);
  const auto flip = [](const fs::path& file, double where) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(where * static_cast<double>(fs::file_size(file)));
    bytes.seekg(at);
    const char byte = static_cast<char>(bytes.get() ^ 4);
    bytes.seekp(at).put(byte);
  };
  const std::pair<const char*, std::function<void(const fs::path&)>> harms[] = {
      {"gone", [](const fs::path& file) { fs::remove(file); }},
      {"keys and values", [&](const fs::path& file) { flip(file, 0.9); }},
      {"head", [&](const fs::path& file) { flip(file, 0.0); }},
      {"cut", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); }}};
  for (const auto& [name, harm] : harms) {
    for (const bool index : {true, false}) {
      SCOPED_TRACE(fmt::format("{}, index {}", name, index));
      const fs::path copy = copy_of(cache);
      if (!index) fs::remove(copy / "index.sqlite");
      for (const fs::path& file : files(copy)) harm(file);
      ModelBinding binding(options(copy, 60));
      const Told told = ask(binding, asked);
      EXPECT_EQ(told.answer.ids, whole.answer.ids);
      EXPECT_EQ(told.answer.text, whole.answer.text);
      EXPECT_LT(told.cached, 100U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GenerationCheckpoint, testing::ValuesIn(test::random_families()));

}  // namespace
}  // namespace cohort::engine
