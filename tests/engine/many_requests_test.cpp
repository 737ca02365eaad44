// Requests of every kind, all at once and each alone: the same bytes.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <filesystem>
#include <random>

#include "serving/model_binding.h"
#include "tests/support/answers.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/rounds.h"

namespace cohort::engine {
namespace {

using serving::BindingOptions;
using serving::ModelBinding;
using test::eventually;

const std::string kGolden = std::string(COHORT_GOLDENS) + "/llama";
constexpr int kVocab = 327;
constexpr int kMostPrompt = 320, kMostAnswer = 220;

/// What one choice came to.
struct Said {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<std::vector<uint32_t>> scores;  // of a token: ids, and logarithms bit by bit
  std::optional<FinishReason> finish;         // its own, not a cancellation
  bool operator==(const Said&) const = default;
};

template <class T>
bool begins(const T& whole, const T& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

/// Whether `part` may be what came of `whole` before it was cut short.
bool begins(const Said& whole, const Said& part) {
  return begins(whole.text, part.text) && begins(whole.ids, part.ids) &&
         begins(whole.scores, part.scores) && (!part.finish || part == whole);
}

std::string to_string(const Said& said) {
  std::string text = fmt::format("{} tokens, finish {}:", said.ids.size(),
                                 said.finish ? static_cast<int>(*said.finish) : -1);
  for (int32_t id : said.ids) text += fmt::format(" {}", id);
  return text;
}

std::vector<uint32_t> bits_of(const ScoredToken& score) {
  std::vector<uint32_t> bits;
  const auto add = [&](const TokenLogprob& token) {
    bits.push_back(static_cast<uint32_t>(token.id));
    bits.push_back(std::bit_cast<uint32_t>(token.logprob));
  };
  add(score.token);
  for (const TokenLogprob& token : score.top) add(token);
  return bits;
}

/// Reads one stream.
class Consumer {
 public:
  Consumer(std::shared_ptr<Stream> stream, int choices)
      : said(static_cast<size_t>(choices)), stream_(std::move(stream)) {}

  void read() {
    for (TokenEvent& event : stream_->drain()) {
      EXPECT_FALSE(over) << "nothing follows the last event";
      over = event.last;
      if (event.error) error = event.error->what();
      cancelled = event.finish == FinishReason::kCancelled;
      if (cancelled || event.error) continue;
      Said& choice = said.at(static_cast<size_t>(event.choice));
      choice.text += event.text;
      choice.ids.insert(choice.ids.end(), event.ids.begin(), event.ids.end());
      for (const ScoredToken& score : event.scores) choice.scores.push_back(bits_of(score));
      choice.finish = event.finish;
      tokens += event.ids.size();
    }
  }
  void cancel() { stream_->cancel(); }
  size_t cached_tokens() const { return stream_->cached_tokens(); }

  std::vector<Said> said;  // by choice
  size_t tokens = 0;
  bool over = false;
  bool cancelled = false;
  std::string error;

 private:
  std::shared_ptr<Stream> stream_;
};

/// A request, what it gets alone, and how it behaves in a crowd.
struct Case {
  Request request;
  std::vector<Said> alone;
  uint64_t arrival = 0;                // iterations
  std::optional<size_t> cancel_after;  // tokens; 0 = before it begins
  int pace = 1;                        // looks of the crowd for one of its own
};

/// Draws requests, of which many begin like earlier ones.
class Drawing {
 public:
  Drawing(uint32_t seed, std::vector<std::string> kv_words)
      : random_(seed), kv_words_(std::move(kv_words)) {
    for (int i = 0; i < 4; ++i) bases_.push_back(ids(kMostPrompt));
  }

  Case next(const std::vector<Case>& earlier) {
    Case made;
    Request& request = made.request;
    const Case* like =
        chance(35) && !earlier.empty() ? &earlier[random_() % earlier.size()] : nullptr;
    request.prompt = like != nullptr ? prompt_like(*like) : prompt();
    request.max_tokens = chance(70) ? draw(1, 40) : chance(60) ? draw(40, 120) : kMostAnswer;
    request.choices = chance(20) ? draw(2, 3) : 1;
    request.ignore_eos = request.max_tokens == kMostAnswer || chance(50);
    request.priority = static_cast<Priority>(draw(0, 2));
    request.client = std::string(static_cast<size_t>(draw(0, 3)), 'c');
    request.cache_prompt = !chance(10);
    if (chance(30)) request.session = fmt::format("session {}", draw(0, 5));
    if (chance(10)) request.cache_salt = "salt";
    if (chance(40)) request.top_logprobs = draw(0, 5);
    if (chance(10)) request.stop = {std::string(1, static_cast<char>(draw('a', 'z')))};
    if (!kv_words_.empty()) request.kv_quant = kv_words_[random_() % kv_words_.size()];
    if (like != nullptr && chance(80)) request.kv_quant = like->request.kv_quant;
    if (kv_words_.empty() && chance(10)) request.atomic = atomic(request.prompt.size());
    request.sampling = sampling();
    arrival_ += chance(60) ? 0 : draw(1, 25);
    made.arrival = arrival_;
    if (chance(15)) made.cancel_after = chance(20) ? 0 : draw(1, 50);
    if (chance(20)) made.pace = draw(2, 100);
    return made;
  }

 private:
  int draw(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  bool chance(int percent) { return draw(1, 100) <= percent; }
  float fraction(float low, float high) {
    return low + (high - low) * static_cast<float>(draw(0, 1000)) / 1000;
  }

  std::vector<int32_t> ids(int count) {
    std::vector<int32_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(draw(0, 299));  // no special tokens
    return ids;
  }

  std::vector<int32_t> prompt() {
    std::vector<int32_t> prompt;
    if (chance(60)) {
      prompt = bases_[random_() % bases_.size()];
      prompt.resize(static_cast<size_t>(draw(1, kMostPrompt)));
    }
    return longer(std::move(prompt));
  }

  /// The same again, or its next turn.
  std::vector<int32_t> prompt_like(const Case& other) {
    std::vector<int32_t> prompt = other.request.prompt;
    if (chance(40)) return prompt;
    const std::vector<int32_t>& answer = other.alone.front().ids;
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    return longer(std::move(prompt));
  }

  std::vector<int32_t> longer(std::vector<int32_t> prompt) {
    const std::vector<int32_t> tail = ids(chance(50) ? draw(1, 15) : draw(1, 130));
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    if (prompt.size() > kMostPrompt) prompt.resize(kMostPrompt);
    return prompt;
  }

  std::vector<TokenSpan> atomic(size_t prompt) {
    const int begin = draw(0, static_cast<int>(prompt) - 1);
    return {{begin, draw(begin + 1, static_cast<int>(prompt))}};
  }

  SamplingOptions sampling() {
    SamplingOptions sampling{.temperature = 0.0f, .seed = random_()};
    if (chance(60)) sampling.temperature = fraction(0.3f, 1.5f);
    if (chance(30)) sampling.top_p = fraction(0.5f, 1);
    if (chance(30)) sampling.top_k = draw(1, 60);
    if (chance(20)) sampling.min_p = fraction(0, 0.2f);
    if (chance(25)) sampling.repetition_penalty = fraction(0.8f, 1.4f);
    if (chance(25)) sampling.presence_penalty = fraction(-1, 2);
    if (chance(25)) sampling.frequency_penalty = fraction(-1, 2);
    for (int i = chance(25) ? draw(1, 5) : 0; i > 0; --i) {
      sampling.logit_bias.emplace_back(draw(0, kVocab - 1), fraction(-20, 5));
    }
    return sampling;
  }

  std::mt19937 random_;
  const std::vector<std::string> kv_words_;
  std::vector<std::vector<int32_t>> bases_;
  uint64_t arrival_ = 0;
};

/// Requests with what each of them gets from a model that nobody else uses and that keeps nothing.
std::vector<Case> solo_runs(BindingOptions options, int count, Drawing drawing) {
  options.prompt_cache_bytes = 0;
  ModelBinding binding(std::move(options));
  std::vector<Case> cases;
  while (static_cast<int>(cases.size()) < count && !testing::Test::HasFailure()) {
    Case made = drawing.next(cases);
    Consumer consumer(binding.submit(made.request), made.request.choices);
    EXPECT_TRUE(eventually([&] {
      consumer.read();
      return consumer.over;
    }));
    EXPECT_EQ(consumer.error, "");
    EXPECT_EQ(consumer.cached_tokens(), 0U);
    made.alone = consumer.said;
    cases.push_back(std::move(made));
  }
  return cases;
}

/// All requests together, by one thread that reads their streams.
class Crowd {
 public:
  Crowd(BindingOptions options, const std::vector<Case>& cases)
      : binding_(std::move(options)), cases_(cases) {}

  void run() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
    for (int look = 0; over_ < cases_.size(); ++look) {
      arrive();
      if (!read(look)) std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (std::chrono::steady_clock::now() > deadline) {
        FAIL() << cases_.size() - over_ << " requests never ended";
      }
    }
    compare();
    const EngineStats& stats = binding_.stats();
    EXPECT_TRUE(eventually([&] { return stats.rows == 0; }));
    EXPECT_EQ(stats.waiting, 0U);
    EXPECT_EQ(stats.waiting_tokens, 0U);
    EXPECT_EQ(stats.parked, 0U);
    EXPECT_EQ(stats.failed_forwards, 0U);
    uint64_t ended = 0;
    for (const auto& count : stats.ended) ended += count;
    EXPECT_EQ(ended, cases_.size());
  }

  const EngineStats& stats() const { return binding_.stats(); }

 private:
  void arrive() {
    while (consumers_.size() < cases_.size()) {
      const Case& next = cases_[consumers_.size()];
      const bool quiet = over_ == consumers_.size();
      if (!quiet && binding_.stats().iterations < next.arrival) return;
      consumers_.emplace_back(binding_.submit(next.request), next.request.choices);
      if (next.cancel_after == 0) consumers_.back().cancel();
    }
  }

  ///   returns  whether anything had come
  bool read(int look) {
    bool came = false;
    for (size_t i = 0; i < consumers_.size(); ++i) {
      Consumer& consumer = consumers_[i];
      if (consumer.over || look % cases_[i].pace != 0) continue;
      const size_t before = consumer.tokens;
      consumer.read();
      came = came || consumer.tokens > before;
      over_ += consumer.over;
      if (consumer.tokens >= cases_[i].cancel_after.value_or(SIZE_MAX)) consumer.cancel();
    }
    return came;
  }

  void compare() {
    size_t cancelled = 0;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Consumer& consumer = consumers_[i];
      SCOPED_TRACE(fmt::format("request {} of {} tokens, {} of them cached", i,
                               cases_[i].request.prompt.size(), consumer.cached_tokens()));
      EXPECT_EQ(consumer.error, "");
      EXPECT_TRUE(!consumer.cancelled || cases_[i].cancel_after);
      cancelled += consumer.cancelled;
      for (size_t choice = 0; choice < consumer.said.size(); ++choice) {
        const Said &got = consumer.said[choice], &alone = cases_[i].alone[choice];
        EXPECT_TRUE(consumer.cancelled ? begins(alone, got) : got == alone)
            << "choice " << choice << "\ngot   " << to_string(got) << "\nalone "
            << to_string(alone);
      }
    }
    EXPECT_GT(cancelled, cases_.size() / 50) << "hardly any was cancelled in time";
  }

  ModelBinding binding_;
  const std::vector<Case>& cases_;
  std::deque<Consumer> consumers_;
  size_t over_ = 0;
};

/// Bytes of a row's keys and values, before they are quantized.
size_t bytes_per_token(const BindingOptions& options) {
  return ModelBinding(options).kv_schemes().front().bytes_per_token;
}

/// The cases in a roomy server, and in cramped ones, where rows give way to each other.
void expect_solo_bytes(const BindingOptions& options, const std::vector<Case>& cases) {
  uint64_t preemptions = 0;
  for (const bool cramped : {false, true}) {
    for (const bool cached : {true, false}) {
      if (!cramped && !cached) continue;  // a cramped one shows the same
      SCOPED_TRACE(
          fmt::format("{}, prompt cache {}", cramped ? "cramped" : "roomy", cached ? "on" : "off"));
      BindingOptions server = options;
      if (cramped) {
        server.engine.kv_memory_bytes = bytes_per_token(options) * 2 * (kMostPrompt + kMostAnswer);
      }
      if (!cached) server.prompt_cache_bytes = 0;
      Crowd crowd(server, cases);
      crowd.run();
      const EngineStats& stats = crowd.stats();
      preemptions += stats.preemptions;
      if (cached && !cramped) {  // in a cramped one rows may need all the room
        EXPECT_GT(stats.cached_tokens, stats.prompt_tokens / 20);
      } else if (!cached) {
        EXPECT_EQ(stats.cached_tokens, 0U);
        EXPECT_TRUE(eventually([&] { return stats.kv_used_bytes == 0; }));
      }
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(preemptions, 0U);
}

TEST(ManyRequests, OutputsOfTwoHundredInACrowdEqualTheirSoloRunsByteForByte) {
  const BindingOptions options{.path = kGolden, .names = {"llama"}, .threads = 2};
  for (uint32_t round = 0; round < test::rounds() && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    expect_solo_bytes(options, solo_runs(options, 200, Drawing(round, {})));
  }
}

TEST(ManyRequests, OfUnlikeStorageTheyDoToo) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("cohort_many_" + std::to_string(::getpid())))
          .string();
  test::RandomCheckpoint({.vocab = kVocab}).write(folder);
  std::filesystem::copy_file(kGolden + "/tokenizer.json", folder + "/tokenizer.json");
  BindingOptions options{.path = folder, .names = {"random"}, .threads = 2, .kv_by_request = true};
  for (uint32_t round = 0; round < test::rounds() && !HasFailure(); ++round) {
    // From the start, in the middle of a block, and at the end of one.
    options.kv.start = std::vector<int64_t>{100, 0, 64}[round % 3];
    SCOPED_TRACE(fmt::format("round {}, precision changes at {}", round, options.kv.start));
    Drawing drawing(1000 + round, {"", "off", "8", "4", "turbo", "turbo:k4v3"});
    expect_solo_bytes(options, solo_runs(options, 100, std::move(drawing)));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cohort::engine
