// Answers of a real, tiny model through the engine: alone, in a crowd, cut short.

#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "serving/model_binding.h"
#include "tests/support/answers.h"
#include "tests/support/tensors.h"

namespace cohort::engine {
namespace {

using serving::BindingOptions;
using serving::ModelBinding;
using test::Answer;
using test::collect;
using test::eventually;

const std::string kFolder = std::string(COHORT_GOLDENS) + "/llama";
constexpr int32_t kEnd = 321;  // one of the checkpoint's end tokens

BindingOptions tiny_llama() {
  return {.path = kFolder, .names = {"llama"}, .threads = 2};
}

const test::Tensors& golden() {
  static const test::Tensors tensors(kFolder + "/golden.safetensors");
  return tensors;
}

Request greedy(std::vector<int32_t> prompt, std::optional<int64_t> max_tokens) {
  return {.prompt = std::move(prompt),
          .max_tokens = max_tokens,
          .sampling = {.temperature = 0.0f},
          .ignore_eos = true};
}

Request greedy_main(std::optional<int64_t> max_tokens) {
  return greedy(golden().ints("main.input_ids"), max_tokens);
}

Answer answer(ModelBinding& binding, Request request) {
  return collect(*binding.submit(std::move(request)));
}

/// The kind of error that submitting gives; nullopt if it is taken.
std::optional<ErrorKind> refusal(ModelBinding& binding, Request request) {
  try {
    binding.submit(std::move(request))->cancel();
    return std::nullopt;
  } catch (const Error& error) {
    return error.kind();
  }
}

/// Asked twice: the second time the prompts are kept ones, whose last block is shared.
void expect_goldens(Device device) {
  ::setenv("MLX_ENABLE_TF32", "0", 1);  // as --exact does
  BindingOptions options = tiny_llama();
  options.load = {.exact = true, .device = device};
  options.kv.dense_bf16 = false;
  options.engine.budget = {.alone_tokens = 40, .mixed_tokens = 7};
  ModelBinding binding(options);
  const std::vector<std::string> prompts{"main", "batch_a", "batch_b"};
  for (const bool again : {false, true}) {
    std::vector<std::shared_ptr<Stream>> streams;
    for (const std::string& prompt : prompts) {
      const auto count = static_cast<int64_t>(golden().ints(prompt + ".greedy_ids").size());
      streams.push_back(binding.submit(greedy(golden().ints(prompt + ".input_ids"), count)));
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Answer got = collect(*streams[i]);
      EXPECT_EQ(got.ids, golden().ints(prompts[i] + ".greedy_ids")) << prompts[i];
      EXPECT_EQ(got.text, binding.tokenizer().decode(got.ids, text::SpecialTokens::kParse));
      EXPECT_EQ(got.finish, FinishReason::kLength);
      EXPECT_EQ(streams[i]->cached_tokens() > 0, again);
    }
  }
}

TEST(Engine, GreedyAnswersEqualTheGoldens) {
  expect_goldens(Device::kCpu);
}

TEST(Engine, GreedyAnswersOfPlainOpsEqualTheGoldens) {
  expect_goldens(Device::kPlain);
  if (mlx::core::is_available(mlx::core::Device::gpu)) expect_goldens(Device::kGpu);
}

/// Requests that differ in length, seed, filters and penalties.
std::vector<Request> unlike_requests() {
  const std::vector<int32_t> tokens = golden().ints("long.input_ids");
  std::vector<Request> requests;
  for (size_t length : {1, 5, 17, 64, 65, 130, 250, 320}) {
    const size_t i = requests.size();
    Request request;
    request.prompt.assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(length));
    request.max_tokens = 10 + static_cast<int64_t>(i) * 9;
    request.sampling.seed = 1000 + i;
    request.sampling.temperature = i % 4 == 3 ? 0.0f : 0.6f + 0.2f * static_cast<float>(i % 3);
    if (i % 2 == 1) request.sampling.top_p = 0.9f;
    if (i % 3 == 1) request.sampling.top_k = 20;
    if (i % 3 == 2) request.sampling.repetition_penalty = 1.2f;
    if (i == 4) request.sampling.frequency_penalty = 0.5f;
    request.ignore_eos = i % 2 == 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(Engine, EightAtOnceEqualTheirSoloRunsTokenForToken) {
  const std::vector<Request> requests = unlike_requests();
  std::vector<Answer> solo;
  {
    ModelBinding binding(tiny_llama());
    for (const Request& request : requests) solo.push_back(answer(binding, request));
  }
  for (const SchedulerLimits& limits :
       {SchedulerLimits{}, SchedulerLimits{64, 16}, SchedulerLimits{3, 1}}) {
    BindingOptions options = tiny_llama();
    options.engine.budget = {.alone_tokens = limits.prefill_tokens,
                             .mixed_tokens = limits.mixed_tokens};
    options.engine.max_rows = limits.mixed_tokens == 16 ? 3 : 8;
    ModelBinding binding(options);
    std::vector<std::shared_ptr<Stream>> streams;
    for (size_t i = 0; i < requests.size(); ++i) {
      streams.push_back(binding.submit(requests[i]));
      // Some join while others are in the middle of their answers.
      const uint64_t enough = i % 3 == 2 ? 10 * i : 0;
      ASSERT_TRUE(eventually([&] { return binding.stats().iterations >= enough; }));
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const Answer got = collect(*streams[i]);
      EXPECT_EQ(got.ids, solo[i].ids) << "request " << i << ", budget " << limits.prefill_tokens;
      EXPECT_EQ(got.text, solo[i].text);
      EXPECT_EQ(got.finish, solo[i].finish);
    }
    EXPECT_EQ(binding.stats().failed_forwards, 0U);
  }
}

TEST(Engine, CancelFreesTheRowWithinOneIteration) {
  ModelBinding binding(tiny_llama());
  for (int round = 0; round < 20; ++round) {
    const auto stream = binding.submit(greedy_main(1900));
    Answer got;
    ASSERT_TRUE(eventually([&] {
      got.take(stream->drain());
      return got.ids.size() > 3;
    }));
    stream->cancel();
    const uint64_t iterations = binding.stats().iterations;
    ASSERT_TRUE(eventually([&] { return binding.stats().rows == 0; }));
    EXPECT_LE(binding.stats().iterations, iterations + 1);
    got.take(stream->drain());
    EXPECT_EQ(got.finish, FinishReason::kCancelled);
  }
}

TEST(Engine, AConsumerThatDoesNotDrainStopsItsOwnRowOnlyAndCanResume) {
  ModelBinding binding(tiny_llama());
  const std::vector<int32_t> wanted = answer(binding, greedy_main(200)).ids;
  const auto slow = binding.submit(greedy_main(200));
  const auto fast = binding.submit(greedy_main(200));
  EXPECT_EQ(collect(*fast).ids, wanted);
  EXPECT_TRUE(slow->full());
  const uint64_t iterations = binding.stats().iterations;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(binding.stats().iterations, iterations) << "an engine without work sleeps";
  std::vector<TokenEvent> held = slow->drain();
  EXPECT_EQ(held.size(), 64U);
  Answer got;
  got.take(std::move(held));
  const Answer rest = collect(*slow);
  got.ids.insert(got.ids.end(), rest.ids.begin(), rest.ids.end());
  EXPECT_EQ(got.ids, wanted);
}

/// Where characters begin, and the end.
std::vector<size_t> character_bounds(const std::string& text) {
  std::vector<size_t> bounds;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) bounds.push_back(i);
  }
  bounds.push_back(text.size());
  return bounds;
}

TEST(Engine, StopStringsSplitOverTokensEndTheAnswerBeforeThem) {
  ModelBinding binding(tiny_llama());
  const Answer whole = answer(binding, greedy_main(60));
  const std::vector<size_t> bounds = character_bounds(whole.text);
  ASSERT_GT(bounds.size(), 30U);
  for (size_t length : {1, 2, 3, 7}) {
    for (size_t from = 0; from + length < 30; from += 3) {
      const std::string stop =
          whole.text.substr(bounds[from], bounds[from + length] - bounds[from]);
      Request request = greedy_main(60);
      request.stop = {"never there", stop};
      const Answer got = answer(binding, request);
      EXPECT_EQ(got.text, whole.text.substr(0, whole.text.find(stop)));
      EXPECT_EQ(got.finish, FinishReason::kStop);
      ASSERT_LE(got.ids.size(), whole.ids.size());
      EXPECT_TRUE(std::equal(got.ids.begin(), got.ids.end(), whole.ids.begin()));
    }
  }
}

TEST(Engine, AStopStringThatOnlyBeginsIsGivenOutAtTheEnd) {
  ModelBinding binding(tiny_llama());
  const Answer whole = answer(binding, greedy_main(40));
  Request request = greedy_main(40);
  const std::vector<size_t> bounds = character_bounds(whole.text);
  request.stop = {whole.text.substr(bounds[bounds.size() - 4]) + "and more"};
  const Answer got = answer(binding, request);
  EXPECT_EQ(got.text, whole.text);
  EXPECT_EQ(got.finish, FinishReason::kLength);
}

TEST(Engine, MaxTokensIsExact) {
  ModelBinding binding(tiny_llama());
  for (int64_t count : {1, 2, 7, 65}) {
    const Answer got = answer(binding, greedy_main(count));
    EXPECT_EQ(got.ids.size(), static_cast<size_t>(count));
    EXPECT_EQ(got.finish, FinishReason::kLength);
  }
}

TEST(Engine, AnEndTokenStopsWithoutTextUnlessIgnored) {
  ModelBinding binding(tiny_llama());
  Request request = greedy_main(5);
  request.sampling.logit_bias = {{kEnd, 1000.0f}};
  request.ignore_eos = false;
  Answer got = answer(binding, request);
  EXPECT_EQ(got.ids, std::vector<int32_t>{kEnd});
  EXPECT_EQ(got.text, "");
  EXPECT_EQ(got.finish, FinishReason::kStop);
  request.ignore_eos = true;
  got = answer(binding, request);
  EXPECT_EQ(got.ids, std::vector<int32_t>(5, kEnd));
  EXPECT_EQ(got.finish, FinishReason::kLength);
}

TEST(Engine, AnAnswerWithoutALimitEndsWithTheContext) {
  BindingOptions options = tiny_llama();
  options.context_tokens = 100;
  ModelBinding binding(options);
  const Answer got = answer(binding, greedy_main(std::nullopt));
  EXPECT_EQ(got.ids.size(), 100 - golden().ints("main.input_ids").size());
  EXPECT_EQ(got.finish, FinishReason::kLength);
  EXPECT_EQ(refusal(binding, greedy_main(18)), ErrorKind::kInvalidRequest);
  EXPECT_EQ(refusal(binding, greedy(std::vector<int32_t>(100, 5), std::nullopt)),
            ErrorKind::kInvalidRequest);
  EXPECT_EQ(answer(binding, greedy(std::vector<int32_t>(99, 5), std::nullopt)).ids.size(), 1U);
}

TEST(Engine, RefusesWhatNoRowCouldBeMadeOf) {
  ModelBinding binding(tiny_llama());
  EXPECT_EQ(refusal(binding, greedy({}, 1)), ErrorKind::kInvalidRequest);
  EXPECT_EQ(refusal(binding, greedy({5, -1}, 1)), ErrorKind::kInvalidRequest);
  EXPECT_EQ(refusal(binding, greedy({5, 327}, 1)), ErrorKind::kInvalidRequest);
  EXPECT_EQ(refusal(binding, greedy({5}, 0)), ErrorKind::kInvalidRequest);
  Request biased = greedy({5}, 1);
  biased.sampling.logit_bias = {{327, 1.0f}};
  EXPECT_EQ(refusal(binding, biased), ErrorKind::kInvalidRequest);
  EXPECT_EQ(refusal(binding, greedy({326}, 1)), std::nullopt);
}

TEST(Engine, MoreThanMayWaitIsOverloadedUntilOthersEnd) {
  BindingOptions options = tiny_llama();
  options.engine.max_rows = 1;
  options.engine.max_waiting = 2;
  ModelBinding binding(options);
  const auto running = binding.submit(greedy_main(1900));
  ASSERT_TRUE(
      eventually([&] { return binding.stats().rows == 1 && binding.stats().waiting == 0; }));
  const auto second = binding.submit(greedy_main(3)), third = binding.submit(greedy_main(4));
  EXPECT_EQ(refusal(binding, greedy_main(5)), ErrorKind::kOverloaded);
  running->cancel();
  EXPECT_EQ(collect(*second).ids.size(), 3U);
  EXPECT_EQ(collect(*third).ids.size(), 4U);
  EXPECT_EQ(answer(binding, greedy_main(5)).ids.size(), 5U);
}

TEST(Engine, AfterStopAcceptingRunningAnswersFinish) {
  ModelBinding binding(tiny_llama());
  const auto running = binding.submit(greedy_main(50));
  binding.stop_accepting();
  EXPECT_EQ(refusal(binding, greedy_main(1)), ErrorKind::kUnavailable);
  EXPECT_EQ(binding.health(), serving::Health::kDraining);
  EXPECT_EQ(collect(*running).ids.size(), 50U);
}

TEST(Engine, DestructionEndsRunningBlockedAndWaitingRowsAsCancelled) {
  BindingOptions options = tiny_llama();
  options.engine.max_rows = 2;
  std::vector<std::shared_ptr<Stream>> streams;
  {
    ModelBinding binding(options);
    for (int i = 0; i < 4; ++i) streams.push_back(binding.submit(greedy_main(1900)));
    ASSERT_TRUE(eventually([&] { return streams[0]->full(); }));
  }
  for (const auto& stream : streams) {
    EXPECT_EQ(collect(*stream).finish, FinishReason::kCancelled);
    stream->cancel();  // its engine is gone: reaches nobody
  }
}

TEST(Engine, ARequestWithoutASeedGetsAFreshOneThatReproducesIt) {
  ModelBinding binding(tiny_llama());
  Request request = greedy_main(30);
  request.sampling.temperature = 1.0f;
  const auto one = binding.submit(request), other = binding.submit(request);
  EXPECT_NE(one->seed(), other->seed());
  const std::vector<int32_t> ids = collect(*one).ids;
  EXPECT_NE(collect(*other).ids, ids);
  request.sampling.seed = one->seed();
  EXPECT_EQ(answer(binding, request).ids, ids);
}

}  // namespace
}  // namespace cohort::engine
