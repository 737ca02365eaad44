// The engine's loop on a fake model: stories of tests/schedules/loop/*.txt (format: the README.md
// beside them), and random ones against what must hold of any.

#include "engine/loop.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/support/loop_scene.h"
#include "tests/support/rounds.h"

namespace cohort::engine {
namespace {

using test::FakeForward;
using test::LoopScene;

/// "name=value" words after a command.
class Words {
 public:
  explicit Words(std::istringstream& in) {
    for (std::string word; in >> word;) {
      const size_t at = word.find('=');
      if (at == std::string::npos) {
        plain_.push_back(word);
      } else {
        named_[word.substr(0, at)] = word.substr(at + 1);
      }
    }
  }
  const std::string& plain(size_t index) const { return plain_.at(index); }
  const std::vector<std::string>& plain() const { return plain_; }
  int64_t number(size_t index) const { return std::stoll(plain_.at(index)); }
  int64_t number(const std::string& name, int64_t otherwise) const {
    const auto at = named_.find(name);
    return at == named_.end() ? otherwise : std::stoll(at->second);
  }
  std::string text(const std::string& name) const {
    const auto at = named_.find(name);
    return at == named_.end() ? "" : at->second;
  }

 private:
  std::vector<std::string> plain_;
  std::map<std::string, std::string> named_;
};

class Story {
 public:
  explicit Story(const std::filesystem::path& path) : file_(path) {
    options_.budget = {.alone_tokens = 2048, .mixed_tokens = 128};
  }

  /// Runs all lines; returns how many expectations were compared.
  int run() {
    std::string line;
    for (int number = 1; std::getline(file_, line); ++number) {
      SCOPED_TRACE("line " + std::to_string(number) + ": " + line);
      std::istringstream in(line.substr(0, line.find('#')));
      std::string command;
      if (!(in >> command)) continue;
      const Words words(in);
      if (!set_up(command, words) && !act(command, words) && !expect(command, words)) {
        ADD_FAILURE() << "unknown command";
      }
    }
    return expectations_;
  }

 private:
  /// Before the first request.
  bool set_up(const std::string& command, const Words& words) {
    if (command == "budget") {
      options_.budget = {.alone_tokens = words.number(0), .mixed_tokens = words.number(1)};
    } else if (command == "adaptive") {
      options_.budget = {.itl_target_s = static_cast<double>(words.number("target_ms", 0)) / 1000};
    } else if (command == "chunk") {
      options_.prefill.chunk = words.number(0);
    } else if (command == "workspace") {
      options_.prefill.workspace = [per = words.number(0)](int64_t chunk, int64_t context) {
        return static_cast<size_t>(per * chunk * context);
      };
    } else if (command == "split-last-token") {
      options_.prefill.split_last_token = true;
    } else if (command == "rows") {
      options_.max_rows = static_cast<size_t>(words.number(0));
    } else if (command == "cache") {
      options_.prompt_cache_bytes = static_cast<size_t>(words.number(0)) << 10;
    } else if (command == "memory") {
      options_.kv_memory_bytes = static_cast<size_t>(words.number(0)) * FakeForward::block_bytes();
    } else {
      return false;
    }
    EXPECT_FALSE(scene_) << "options come first";
    return true;
  }

  bool act(const std::string& command, const Words& words) {
    if (command == "submit") {
      submit(words);
    } else if (command == "cost") {
      scene().cost = [base = words.number(0), each = words.number(1)](int64_t tokens) {
        return std::chrono::microseconds(base + each * tokens);
      };
    } else if (command == "advance") {
      scene().advance(std::chrono::seconds(words.number(0)));
    } else if (command == "cancel") {
      consumer(words).stream->cancel();
    } else if (command == "block") {
      consumer(words).reads = false;
    } else if (command == "unblock") {
      consumer(words).reads = true;
      scene().read_all();
    } else if (command == "fail" || command == "heal") {
      fail(words, command == "fail");
    } else {
      return false;
    }
    return true;
  }

  bool expect(const std::string& command, const Words& words) {
    if (command == "step") {
      std::string wanted;
      for (const std::string& word : words.plain()) wanted += (wanted.empty() ? "" : " ") + word;
      EXPECT_EQ(scene().step(), wanted);
    } else if (command == "run") {
      scene().run(words.number(0));
    } else if (command == "ended") {
      const LoopScene::Consumer& ended = consumer(words);
      EXPECT_TRUE(ended.over);
      EXPECT_TRUE(std::ranges::count(ended.ends, words.plain(1))) << ended.error;
    } else if (command == "said") {
      for (const auto& ids : consumer(words).ids) {
        EXPECT_EQ(static_cast<int64_t>(ids.size()), words.number(1));
      }
    } else if (command == "stats") {
      const EngineStats& stats = scene().stats();
      const auto same = [&](const char* name, uint64_t value) {
        EXPECT_EQ(words.number(name, static_cast<int64_t>(value)), value) << name;
      };
      same("rows", stats.rows);
      same("waiting", stats.waiting);
      same("parked", stats.parked);
      same("preemptions", stats.preemptions);
      same("releases", static_cast<uint64_t>(scene().forward().releases));
      same("failed", stats.failed_forwards);
      same("cached", stats.cached_tokens);
      same("entries", scene().loop().prefix_stats().entries);
      same("blocks", stats.kv_used_bytes / FakeForward::block_bytes());
    } else {
      return false;
    }
    ++expectations_;
    return true;
  }

  void submit(const Words& words) {
    Request request;
    request.choices = static_cast<int>(words.number("choices", 1));
    request.client = words.text("client");
    request.session = words.text("session");
    request.cache_prompt = words.text("cache") != "no";
    if (const int64_t like = words.number("like", -1); like >= 0) {
      request.prompt = FakeForward::prompt(static_cast<int32_t>(like), words.number("prompt", 1));
    }
    const std::string priority = words.text("priority");
    request.priority = priority == "high"  ? Priority::kHigh
                       : priority == "low" ? Priority::kLow
                                           : Priority::kNormal;
    std::istringstream atomic(words.text("atomic"));  // "10-20,30-40"
    for (TokenSpan span; atomic >> span.begin && atomic.ignore() && atomic >> span.end;) {
      request.atomic.push_back(span);
      atomic.ignore();
    }
    scene().submit(static_cast<int32_t>(words.number(0)), words.number("prompt", 1),
                   words.number("max", 1000), std::move(request));
  }

  void fail(const Words& words, bool on) {
    const auto number = static_cast<int32_t>(words.number(1));
    if (words.plain(0) == "consumer") {
      consumers_fail_.insert(number);
      scene().consumers.at(number).stream->on_ready([] { throw std::runtime_error("no wake"); });
      return;
    }
    auto& failing =
        words.plain(0) == "forward" ? scene().failing_forwards : scene().failing_samples;
    if (on) {
      failing.insert(number);
    } else {
      failing.erase(number);
    }
  }

  LoopScene& scene() {
    if (!scene_) scene_ = std::make_unique<LoopScene>(options_);
    return *scene_;
  }
  LoopScene::Consumer& consumer(const Words& words) {
    return scene().consumers.at(static_cast<int32_t>(words.number(0)));
  }

  std::ifstream file_;
  int expectations_ = 0;
  EngineOptions options_;
  std::unique_ptr<LoopScene> scene_;
  std::set<int32_t> consumers_fail_;
};

TEST(Loop, EveryStoryComesOutAsWritten) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(COHORT_SCHEDULES "/loop")) {
    if (entry.path().extension() != ".txt") continue;
    SCOPED_TRACE(entry.path().filename().string());
    try {
      EXPECT_GT(Story(entry.path()).run(), 0);
    } catch (const std::exception& failure) {
      ADD_FAILURE() << failure.what();
    }
    ++files;
  }
  EXPECT_GE(files, 40);
}

/// What one random schedule is made of.
class RandomSchedule {
 public:
  RandomSchedule(uint32_t seed, const FakeForward::Layers& layers)
      : random_(seed), scene_(options(), layers) {}

  void run() {
    const int requests = draw(1, 8);
    for (int number = 0; number < requests;) {
      for (int steps = draw(0, 4); steps > 0; --steps) step();
      submit(number++);
    }
    for (int steps = draw(0, 60); steps > 0; --steps) step();
    scene_.failing_forwards.clear();
    scene_.failing_samples.clear();
    for (auto& [number, consumer] : scene_.consumers) consumer.reads = true;
    scene_.read_all();
    scene_.run(20000);
    for (const auto& [number, consumer] : scene_.consumers) {
      EXPECT_TRUE(consumer.over) << "request " << number << " never ended";
    }
    EXPECT_EQ(scene_.stats().rows, 0U);
    EXPECT_EQ(scene_.stats().waiting, 0U);
    EXPECT_EQ(scene_.stats().waiting_tokens, 0U);
    scene_.loop().forget_prefixes();
    EXPECT_EQ(scene_.stats().kv_used_bytes, 0U);
  }
  EngineStats& stats() { return scene_.stats(); }

 private:
  int draw(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  bool chance(int percent) { return draw(1, 100) <= percent; }

  EngineOptions options() {
    EngineOptions options;
    options.max_rows = static_cast<size_t>(draw(3, 10));
    budget_ = {.alone_tokens = draw(1, 120), .mixed_tokens = draw(1, 40)};
    options.budget = budget_;
    options.prefill.chunk = draw(8, 200);
    options.prefill.split_last_token = chance(20);
    most_blocks_ = chance(50) ? draw(5, 12) : 1000;
    options.kv_memory_bytes = static_cast<size_t>(most_blocks_) * FakeForward::block_bytes();
    options.prompt_cache_bytes = chance(50) ? static_cast<size_t>(draw(1, 100)) << 10 : 0;
    return options;
  }

  void submit(int number) {
    Request request;
    request.choices = chance(20) ? draw(2, 3) : 1;
    request.priority = static_cast<Priority>(draw(0, 2));
    request.client = std::string(static_cast<size_t>(draw(0, 2)), 'c');
    const int64_t prompt = chance(30) ? draw(65, 250) : chance(10) ? draw(250, 700) : draw(1, 40);
    if (chance(20) && prompt > 3) {
      const int64_t begin = draw(0, static_cast<int>(prompt) - 2);
      const int64_t end = draw(static_cast<int>(begin) + 1, static_cast<int>(prompt));
      request.atomic.push_back({begin, end});
    }
    // Some begin like others, and some are the same.
    request.prompt = FakeForward::prompt(chance(40) ? draw(0, number) : number, prompt);
    scene_.submit(number, prompt, draw(1, 60), std::move(request), static_cast<size_t>(draw(1, 4)));
  }

  void step() {
    for (auto& [number, consumer] : scene_.consumers) {
      if (chance(2)) consumer.stream->cancel();
      if (chance(5)) consumer.reads = !consumer.reads;
      if (chance(1)) scene_.failing_forwards.insert(number);
      if (chance(1)) scene_.failing_samples.insert(number);
      if (chance(30)) scene_.failing_forwards.erase(number);
      if (chance(30)) scene_.failing_samples.erase(number);
    }
    scene_.step();
    expect_sound();
  }

  void expect_sound() {
    int64_t prefilled = 0, prefilling = 0, decoding = 0;
    bool seen_prefill = false;
    std::set<RowId> planned;
    for (const PlannedGroup& group : scene_.last_plan.groups) {
      EXPECT_TRUE(planned.insert(group.id).second) << "a row is in a forward once";
      const bool decodes = group.tokens == 1 && group.samples;
      EXPECT_FALSE(decodes && seen_prefill) << "decode groups come first";
      seen_prefill = seen_prefill || !decodes;
      decoding += decodes;
      if (decodes) continue;
      ++prefilling;
      prefilled += group.tokens;
    }
    const int64_t budget = decoding > 0 ? budget_.mixed_tokens : budget_.alone_tokens;
    // One atomic step may be longer than any budget, but is alone then. A prompt's last token looks
    // like a decode group here, which can only make the budget seem smaller.
    if (prefilling > 1 && decoding == 0) {
      EXPECT_LE(prefilled, std::max(budget, prefilling));
    }
    EXPECT_LE(scene_.stats().kv_used_bytes,
              static_cast<size_t>(most_blocks_) * FakeForward::block_bytes());
  }

  std::mt19937 random_;
  TokenBudget::Options budget_;
  int most_blocks_ = 0;
  LoopScene scene_;
};

TEST(Loop, RandomSchedulesLoseNoTokenAndEndEveryRow) {
#ifdef __SANITIZE_THREAD__
  constexpr int kSchedules = 1000;  // in half a minute
#else
  constexpr int kSchedules = 10000;
#endif
  const int schedules = kSchedules * static_cast<int>(test::rounds());
  const kv::LayerSpec window{.kv_heads = 1, .head_dim = 16, .window = 70};
  const FakeForward::Layers models[] = {{FakeForward::kAttention},
                                        {FakeForward::kAttention},
                                        {FakeForward::kRecurrent, window},
                                        {FakeForward::kAttention, FakeForward::kRecurrent}};
  uint64_t preemptions = 0, failed_forwards = 0, cached_tokens = 0;
  for (int seed = 0; seed < schedules; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomSchedule schedule(static_cast<uint32_t>(seed), models[seed % 4]);
    schedule.run();
    if (testing::Test::HasFailure()) break;
    preemptions += schedule.stats().preemptions;
    failed_forwards += schedule.stats().failed_forwards;
    cached_tokens += schedule.stats().cached_tokens;
  }
  EXPECT_GT(preemptions, 100U) << "the schedules are too tame";
  EXPECT_GT(failed_forwards, 100U);
  EXPECT_GT(cached_tokens, 1000U);
}

}  // namespace
}  // namespace cohort::engine
