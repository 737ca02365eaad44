#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/request.h"

namespace cohort::engine {

/// A piece of an answer. `text` is valid UTF-8 and never ends inside a character; it may be empty
/// while a character or a possible stop string is held back.
struct TokenEvent {
  std::string text;
  std::vector<int32_t> ids;            // tokens produced since the last event
  std::optional<FinishReason> finish;  // set on the last event only
  std::optional<Error> error;          // set iff finish == kError
};

/// The bounded channel of one request, from the engine thread to one consumer.
///   backpressure  the engine plans no further token for a row while its stream is full
///   end           the last event carries `finish`; nothing follows it
class Stream {
 public:
  explicit Stream(size_t prompt_tokens, uint64_t seed, size_t capacity = 64)
      : prompt_tokens_(prompt_tokens), seed_(seed), capacity_(capacity) {}

  // Constant after construction.
  size_t prompt_tokens() const { return prompt_tokens_; }
  uint64_t seed() const { return seed_; }

  // Consumer side, any one thread.

  /// Takes what has arrived without blocking; empty if nothing has.
  std::vector<TokenEvent> drain();
  /// Takes what has arrived, waiting until there is something.
  std::vector<TokenEvent> wait();
  /// Calls `wake` (on the engine thread, briefly, must not throw) whenever events arrive; at once
  /// if some are already there. An empty function unsubscribes and does not return while `wake`
  /// runs.
  void on_ready(std::function<void()> wake);
  /// The consumer is gone: the row is freed before the engine's next iteration.
  void cancel();

  // Producer side, engine thread.

  void push(TokenEvent event);
  bool full() const;
  /// Takes no lock: the engine asks it of every waiting request.
  bool cancelled() const { return cancelled_.load(); }
  /// Calls `room` when a full stream was drained or cancelled, so that an idle engine wakes.
  void on_room(std::function<void()> room);

 private:
  const size_t prompt_tokens_;
  const uint64_t seed_;
  const size_t capacity_;
  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  // Guarded by mutex_.
  std::vector<TokenEvent> events_;
  std::function<void()> wake_;
  std::function<void()> room_;
};

}  // namespace cohort::engine
