// The whole engine with its thread, and threads that submit, read, block, leave and look on.

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <shared_mutex>

#include "engine/engine.h"
#include "tests/support/answers.h"
#include "tests/support/fake_forward.h"
#include "tests/support/rounds.h"
#include "tests/support/scene_tokenizer.h"

namespace cohort::engine {
namespace {

using std::chrono::microseconds;
using test::eventually;
using test::FakeForward;

constexpr int kClients = 4;
constexpr std::chrono::seconds kPatience{60};

/// Random numbers of one thread.
class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  int draw(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  bool chance(int percent) { return draw(1, 100) <= percent; }

 private:
  std::mt19937 random_;
};

/// Wakes whoever waits for events, as a server's own threads are woken.
class Bell {
 public:
  void ring() {
    std::lock_guard lock(mutex_);
    rung_ = true;
    changed_.notify_one();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return std::exchange(rung_, false); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

/// What a client got of one request, every token compared with what the request alone gives.
class Answer {
 public:
  Answer(std::vector<int32_t> prompt, int choices, int64_t max_tokens)
      : max_tokens_(max_tokens),
        ids_(static_cast<size_t>(choices), prompt),
        prompt_(prompt.size()) {}

  void take(std::vector<TokenEvent> events) {
    for (const TokenEvent& event : events) {
      ASSERT_FALSE(end_) << "nothing follows the last event";
      if (event.error) FAIL() << event.error->what();
      if (event.last) end_ = event.finish;
      ASSERT_TRUE(!event.last || event.finish) << "the last event says why";
      std::vector<int32_t>& ids = ids_.at(static_cast<size_t>(event.choice));
      for (int32_t id : event.ids) {
        ASSERT_EQ(id, FakeForward::next(ids));
        ids.push_back(id);
      }
      if (event.finish == FinishReason::kLength) {
        ASSERT_EQ(static_cast<int64_t>(ids.size() - prompt_), max_tokens_);
      }
    }
  }
  std::optional<FinishReason> end() const { return end_; }

 private:
  const int64_t max_tokens_;
  std::vector<std::vector<int32_t>> ids_;  // of each choice, after the prompt
  const size_t prompt_;
  std::optional<FinishReason> end_;
};

/// An engine that clients use until it is taken away.
class SharedEngine {
 public:
  explicit SharedEngine(EngineOptions options)
      : engine_(std::make_unique<Engine>(forward_, FakeForward::layers(), cpu_,
                                         test::scene_tokenizer(), std::set<int32_t>{},
                                         std::move(options))) {}

  ///   returns  whether the request was taken: it may be one too many, or the engine gone
  bool submit(Submission submission) {
    std::shared_lock lock(mutex_);
    if (!engine_) return false;
    try {
      engine_->submit(std::move(submission));
    } catch (const Error& refusal) {
      EXPECT_TRUE(refusal.kind() == ErrorKind::kOverloaded ||
                  refusal.kind() == ErrorKind::kUnavailable)
          << refusal.what();
      return false;
    }
    ++taken_;
    return true;
  }
  /// Everything that others may look at meanwhile.
  ///   returns  false when there is nothing left to look at
  bool look() {
    std::shared_lock lock(mutex_);
    if (!engine_) return false;
    const EngineStats& stats = engine_->stats();
    EXPECT_LE(stats.parked, 1000U);
    EXPECT_LE(stats.waiting_tokens, 100000U) << "no count passes below zero";
    EXPECT_LE(stats.kv_used_bytes, stats.kv_limit_bytes);
    EXPECT_EQ(stats.failed_forwards, 0U);
    EXPECT_TRUE(engine_->alive());
    return true;
  }
  void stop_accepting() { engine_->stop_accepting(); }
  void destroy() {
    std::unique_lock lock(mutex_);
    engine_.reset();
  }
  const EngineStats& stats() const { return engine_->stats(); }
  uint64_t taken() const { return taken_; }

 private:
  FakeForward forward_;
  kernels::cpu::Cpu cpu_{1};
  std::shared_mutex mutex_;
  std::unique_ptr<Engine> engine_;
  std::atomic<uint64_t> taken_ = 0;
};

/// Submits requests one after the other, or a few at once, and reads them in its own way.
class Client {
 public:
  Client(SharedEngine& engine, uint32_t seed) : engine_(engine), dice_(seed) {}

  void run(int requests) {
    for (int i = 0; i < requests && !testing::Test::HasFatalFailure(); ++i) one();
  }
  /// Answers that nobody cancelled and that did not end by themselves.
  int cut() const { return cut_; }

 private:
  void one() {
    Request request{.choices = dice_.chance(20) ? dice_.draw(2, 3) : 1};
    request.prompt = FakeForward::prompt(dice_.draw(0, 3), dice_.draw(1, 150));
    request.priority = static_cast<Priority>(dice_.draw(0, 2));
    request.client = std::to_string(dice_.draw(0, 2));
    request.cache_prompt = dice_.chance(80);
    const int64_t max_tokens = dice_.draw(1, 60);
    Answer answer(request.prompt, request.choices, max_tokens);
    auto stream = std::make_shared<Stream>(request.prompt.size(), 0,
                                           static_cast<size_t>(dice_.draw(1, 8)), request.choices);
    const int manner = dice_.draw(0, 3);
    const auto bell = std::make_shared<Bell>();
    if (manner == 0) stream->on_ready([bell] { bell->ring(); });
    if (!engine_.submit({std::move(request),
                         {.temperature = 0},
                         max_tokens,
                         FakeForward::precision(),
                         stream})) {
      stream->on_ready({});
      return std::this_thread::sleep_for(microseconds(dice_.draw(0, 300)));
    }
    const int leaves_after = dice_.chance(25) ? dice_.draw(0, 30) : INT32_MAX;  // reads
    read(*stream, *bell, manner, leaves_after, answer);
    stream->on_ready({});
    EXPECT_TRUE(stream->drain().empty());
    if (leaves_after == INT32_MAX && answer.end() == FinishReason::kCancelled) ++cut_;
    stream->cancel();  // too late: says nothing to anybody
  }

  void read(Stream& stream, Bell& bell, int manner, int leaves_after, Answer& answer) {
    const auto deadline = Clock::now() + kPatience;
    const int blocks_at = dice_.chance(20) ? dice_.draw(0, 10) : -1;
    for (int reads = 0; !answer.end(); ++reads) {
      if (reads == leaves_after) stream.cancel();
      if (reads == blocks_at) std::this_thread::sleep_for(microseconds(3000));
      if (manner == 0) {
        ASSERT_TRUE(bell.wait()) << "nobody woke the consumer";
        answer.take(stream.drain());
      } else if (manner == 1) {
        answer.take(stream.wait());
      } else {
        answer.take(stream.drain());
        std::this_thread::sleep_for(microseconds(manner == 2 ? 0 : dice_.draw(0, 400)));
      }
      ASSERT_FALSE(testing::Test::HasFatalFailure());
      ASSERT_LT(Clock::now(), deadline) << "a stream never ended";
    }
  }

  SharedEngine& engine_;
  Dice dice_;
  int cut_ = 0;
};

EngineOptions random_options(Dice& dice) {
  EngineOptions options;
  options.max_rows = static_cast<size_t>(dice.draw(3, 8));
  options.max_waiting = static_cast<size_t>(dice.draw(1, 8));
  if (dice.chance(50)) options.budget = {.alone_tokens = dice.draw(1, 100), .mixed_tokens = 8};
  if (dice.chance(50)) {
    options.kv_memory_bytes = static_cast<size_t>(dice.draw(5, 9)) * FakeForward::block_bytes();
  }
  if (dice.chance(60)) options.prompt_cache_bytes = static_cast<size_t>(dice.draw(4, 60)) << 10;
  return options;
}

/// Clients on threads of their own, and one that looks on.
class ThreadedRound {
 public:
  explicit ThreadedRound(uint32_t seed) : dice_(seed), engine_(random_options(dice_)) {
    for (uint32_t i = 0; i < kClients; ++i) clients_.emplace_back(engine_, seed * 100 + i);
  }

  /// Until all is answered.
  void run() {
    start();
    join_clients();
    const EngineStats& stats = engine_.stats();
    EXPECT_TRUE(eventually([&] { return stats.rows == 0 && stats.waiting == 0; }));
    EXPECT_EQ(stats.waiting_tokens, 0U);
    EXPECT_EQ(stats.parked, 0U);
    uint64_t ended = 0;
    for (const auto& count : stats.ended) ended += count;
    EXPECT_EQ(ended, engine_.taken());
    for (const Client& client : clients_) EXPECT_EQ(client.cut(), 0);
    engine_.destroy();
    watcher_.join();
  }
  /// Until the engine is taken away.
  void run_short() {
    start();
    std::this_thread::sleep_for(microseconds(dice_.draw(0, 5000)));
    if (dice_.chance(30)) engine_.stop_accepting();
    engine_.destroy();
    join_clients();
    watcher_.join();
  }
  uint64_t taken() const { return engine_.taken(); }

 private:
  void start() {
    for (Client& client : clients_) threads_.emplace_back([&] { client.run(12); });
    watcher_ = std::thread([&] {
      while (engine_.look()) std::this_thread::sleep_for(microseconds(100));
    });
  }
  void join_clients() {
    for (std::thread& thread : threads_) thread.join();
  }

  Dice dice_;
  SharedEngine engine_;
  std::deque<Client> clients_;
  std::vector<std::thread> threads_;
  std::thread watcher_;
};

TEST(EngineThreads, EveryStreamOfManyThreadsEndsOnceWithItsOwnTokens) {
  uint64_t taken = 0;
  for (uint32_t seed = 0; seed < 25 * test::rounds() && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ThreadedRound round(seed);
    round.run();
    taken += round.taken();
  }
  EXPECT_GT(taken, 300U) << "most were refused";
}

TEST(EngineThreads, AnEngineThatIsDestroyedEndsEveryStreamOnce) {
  for (uint32_t seed = 0; seed < 60 * test::rounds() && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ThreadedRound(1000 + seed).run_short();
  }
}

}  // namespace
}  // namespace cohort::engine
