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

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm of the model's own probability (engine/logprobs.h)
};

/// A token with the likeliest tokens of its place, likeliest first.
struct ScoredToken {
  TokenLogprob token;
  std::vector<TokenLogprob> top;  // as many as Request::top_logprobs, or all that are finite
};

/// A piece of one choice. `text` is valid UTF-8 and never ends inside a character; it may be empty
/// while a character or a possible stop string is held back.
struct TokenEvent {
  int choice = 0;
  std::string text;
  std::vector<int32_t> ids;            // tokens produced since the last event of the choice
  std::vector<ScoredToken> scores;     // of `ids`, without an end token; if asked for
  std::optional<FinishReason> finish;  // set on the choice's last event only
  std::optional<Error> error;          // set iff finish == kError
  bool last = false;                   // nothing follows, of any choice; set by Stream::push
};

/// The bounded channel of one request, from the engine thread to one consumer.
///   backpressure  the engine plans no further token for a row while its stream is full
///   end           every choice ends with an event that carries `finish`; kError or kCancelled ends
///                 them all. The last event says so.
class Stream {
 public:
  static constexpr size_t kCapacity = 64;

  explicit Stream(size_t prompt_tokens, uint64_t seed, size_t capacity = kCapacity, int choices = 1)
      : prompt_tokens_(prompt_tokens), seed_(seed), capacity_(capacity), open_choices_(choices) {}

  // Constant after construction.
  size_t prompt_tokens() const { return prompt_tokens_; }
  uint64_t seed() const { return seed_; }
  /// Prompt tokens that were not computed because an earlier request had been; known with the first
  /// event, of a resumed answer with the second.
  size_t cached_tokens() const { return cached_tokens_; }

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

  void set_cached_tokens(size_t tokens) { cached_tokens_ = tokens; }
  /// What comes after a last event is dropped.
  void push(TokenEvent event);
  bool full() const;
  /// Choices whose last event was not pushed yet; with none, nothing follows.
  int open_choices() const;
  /// Nobody wants more of any choice: the consumer is gone, or one choice ended all. Takes no lock.
  bool cancelled() const { return cancelled_; }
  /// Calls `room` (on the consumer's thread, under this stream's lock) when a full stream was
  /// drained or cancelled, so that an idle engine wakes. An empty function unsubscribes and does
  /// not return while `room` runs.
  void on_room(std::function<void()> room);

 private:
  const size_t prompt_tokens_;
  const uint64_t seed_;
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  // Guarded by mutex_.
  std::vector<TokenEvent> events_;
  std::function<void()> wake_;
  std::function<void()> room_;
  int open_choices_;  // that have not ended

  std::atomic<bool> cancelled_ = false;
  std::atomic<size_t> cached_tokens_ = 0;
};

}  // namespace cohort::engine
