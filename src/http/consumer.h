#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "engine/stream.h"

namespace cohort::http {

/// The reading end of a stream on the io thread: sleeps until the engine wakes it, and cancels the
/// stream on destruction unless its last event was taken.
class Consumer {
 public:
  Consumer(const boost::asio::any_io_executor& executor, std::shared_ptr<engine::Stream> stream);
  ~Consumer();
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;

  /// All events that have arrived, waiting for the first one at most `patience`.
  ///   returns  empty after `patience` or nudge()
  boost::asio::awaitable<std::vector<engine::TokenEvent>> next(std::chrono::milliseconds patience);
  /// The last event was taken.
  bool finished() const { return finished_; }
  /// Ends next() once before its time.
  void nudge();
  /// Cancels the stream: `last` is the last event, behind what has arrived.
  void end(engine::TokenEvent last);

 private:
  struct Alarm;
  const std::shared_ptr<engine::Stream> stream_;
  const std::shared_ptr<Alarm> alarm_;
  bool finished_ = false;
  bool nudged_ = false;
  std::optional<engine::TokenEvent> last_;  // of end()
};

}  // namespace cohort::http
