#include "engine/engine.h"

#include <cstdio>
#include <exception>
#include <utility>

#include "base/system_memory.h"

namespace cohort::engine {
namespace {

// How long an engine is idle before it gives back what it need not hold: long enough for the last
// answer to be sent, whose memory is then free, too.
constexpr std::chrono::seconds kIdleTime{1};
// How long the end of the server may take to make kept prefixes durable.
constexpr std::chrono::seconds kClosingTime{10};

EngineOptions with_wake(EngineOptions options, std::function<void()> wake) {
  if (options.ssd) options.ssd->on_done = std::move(wake);
  return options;
}

}  // namespace

Engine::Engine(Forward& forward, std::vector<kv::AnyLayerSpec> layers, kernels::cpu::Cpu& cpu,
               const text::Tokenizer& tokenizer, std::set<int32_t> end_tokens,
               EngineOptions options)
    : forward_(forward),
      options_(with_wake(std::move(options), [this] { wake(); })),
      loop_(forward, std::move(layers), cpu, tokenizer, std::move(end_tokens), options_, stats_),
      thread_([this] { run(); }) {}

Engine::~Engine() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void Engine::submit(Submission submission) {
  submission.arrived = options_.now();
  const std::shared_ptr<Stream> stream = submission.stream;
  stream->on_room([this] { wake(); });
  if (std::optional<Error> refusal = enqueue(std::move(submission))) {
    stream->on_room({});
    throw *refusal;
  }
  work_.notify_one();
}

std::optional<Error> Engine::enqueue(Submission submission) {
  const size_t tokens = submission.request.prompt.size();
  std::lock_guard lock(mutex_);
  if (draining_ || stopping_) {
    return Error(ErrorKind::kUnavailable, "the server is shutting down", "", "server_draining");
  }
  if (!alive_) {
    return Error(ErrorKind::kUnavailable, "the engine has stopped after a failure", "",
                 "engine_dead");
  }
  const size_t waiting = stats_.waiting, waiting_tokens = stats_.waiting_tokens;
  if (waiting >= options_.max_waiting) {
    return Error(
        ErrorKind::kOverloaded,
        fmt::format("requests that are waiting already: {}, as many as may (--max-waiting); try "
                    "again later",
                    waiting));
  }
  if (waiting > 0 && waiting_tokens + tokens > options_.max_waiting_tokens) {
    return Error(
        ErrorKind::kOverloaded,
        fmt::format("prompts of {} tokens are waiting already, and this one has {}, more than "
                    "may (--max-waiting-tokens); try again later",
                    waiting_tokens, tokens));
  }
  inbox_.push_back(std::move(submission));
  stats_.waiting_tokens += tokens;
  ++stats_.waiting;
  return std::nullopt;
}

void Engine::wake() {
  {
    std::lock_guard lock(mutex_);
    stirred_ = true;
  }
  work_.notify_one();
}

void Engine::run() {
  try {
    forward_.begin();
    bool idle = true;
    while (receive(idle)) idle = loop_.step().empty() && !loop_.stirred();
    end_all({.finish = FinishReason::kCancelled});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cohort: the engine thread ended: %s\n", error.what());
    end_all({.finish = FinishReason::kError, .error = as_error(error)});
  }
}

void Engine::release_memory() {
  loop_.release_memory();
#ifndef NDEBUG
  loop_.check_integrity();
#endif
  return_freed_memory();
}

bool Engine::receive(bool idle) {
  std::deque<Submission> arrived;
  {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return stopping_ || stirred_ || !idle || !inbox_.empty(); };
    if (idle && loop_.rows().empty() && !work_.wait_for(lock, kIdleTime, ready)) {
      lock.unlock();
      release_memory();
      lock.lock();
    }
    if (loop_.some_wait()) {
      work_.wait_for(lock, Loop::kUnreadTime, ready);
    } else if (loop_.demotes()) {
      work_.wait_for(lock, options_.demote_idle, ready);
    } else {
      work_.wait(lock, ready);
    }
    stirred_ = false;
    if (stopping_) return false;
    arrived.swap(inbox_);
  }
  for (Submission& submission : arrived) loop_.accept(std::move(submission));
  return true;
}

void Engine::end_all(const TokenEvent& last) noexcept {
  std::deque<Submission> arrived;
  {
    std::lock_guard lock(mutex_);
    alive_ = false;
    arrived.swap(inbox_);
  }
  for (Submission& submission : arrived) loop_.accept(std::move(submission));
  loop_.end_all(last);
  // Its threads wake the engine: they end before it does.
  if (store::SsdStore* ssd = loop_.ssd()) ssd->close(kClosingTime);
  forward_.release_memory();
}

}  // namespace cohort::engine
