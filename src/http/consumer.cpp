#include "http/consumer.h"

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace cohort::http {

namespace asio = boost::asio;

/// A timer that the engine thread ends early. Many tokens that arrive before the io thread looks
/// post only one wake-up.
struct Consumer::Alarm : std::enable_shared_from_this<Alarm> {
  explicit Alarm(const asio::any_io_executor& executor) : timer(executor) {}

  void ring() {
    if (posted.exchange(true)) return;
    asio::post(timer.get_executor(), [self = shared_from_this()] {
      self->posted = false;
      self->timer.cancel();
    });
  }

  asio::steady_timer timer;  // io thread
  std::atomic<bool> posted = false;
};

Consumer::Consumer(const asio::any_io_executor& executor, std::shared_ptr<engine::Stream> stream)
    : stream_(std::move(stream)), alarm_(std::make_shared<Alarm>(executor)) {
  stream_->on_ready([alarm = alarm_] { alarm->ring(); });
}

Consumer::~Consumer() {
  stream_->on_ready({});
  if (!finished_) stream_->cancel();
}

void Consumer::nudge() {
  nudged_ = true;
  alarm_->timer.cancel();
}

void Consumer::end(engine::TokenEvent last) {
  stream_->cancel();
  last_ = std::move(last);
  last_->last = true;
  nudge();
}

asio::awaitable<std::vector<engine::TokenEvent>> Consumer::next(
    std::chrono::milliseconds patience) {
  alarm_->timer.expires_after(patience);
  for (;;) {
    std::vector<engine::TokenEvent> events = stream_->drain();
    const bool ended = !events.empty() && events.back().last;
    if (last_ && !ended) events.push_back(*last_);
    if (!events.empty()) {
      finished_ = events.back().last;
      co_return events;
    }
    if (std::exchange(nudged_, false)) co_return events;
    // A wake-up that is posted from here on runs after this coroutine has suspended.
    const auto [error] = co_await alarm_->timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (!error) co_return events;
  }
}

}  // namespace cohort::http
