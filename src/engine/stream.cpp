#include "engine/stream.h"

#include <utility>

namespace cohort::engine {

std::vector<TokenEvent> Stream::drain() {
  std::lock_guard lock(mutex_);
  const bool was_full = events_.size() >= capacity_;
  if (was_full && room_) room_();
  return std::exchange(events_, {});
}

std::vector<TokenEvent> Stream::wait() {
  {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !events_.empty(); });
  }
  return drain();
}

void Stream::on_ready(std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
  if (wake_ && !events_.empty()) wake_();
}

void Stream::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (room_) room_();
}

void Stream::push(TokenEvent event) {
  std::lock_guard lock(mutex_);
  if (open_choices_ == 0) return;
  const bool ends_all =
      event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled;
  const int open = ends_all ? 0 : open_choices_ - (event.finish ? 1 : 0);
  event.last = open == 0;
  if (event.error) {
    // Copies of an exception share their text: the consumer gets one that no other thread lets go.
    const Error& shared = *event.error;
    event.error = Error(shared.kind(), shared.what(), shared.param(), shared.code());
  }
  events_.push_back(std::move(event));
  // Not before: what could not be pushed has not happened.
  open_choices_ = open;
  if (ends_all) cancelled_ = true;
  if (open == 0) room_ = nullptr;  // whoever looks from now on has no engine to wake
  arrived_.notify_one();
  if (wake_) wake_();
}

bool Stream::full() const {
  std::lock_guard lock(mutex_);
  return events_.size() >= capacity_;
}

int Stream::open_choices() const {
  std::lock_guard lock(mutex_);
  return open_choices_;
}

void Stream::on_room(std::function<void()> room) {
  std::lock_guard lock(mutex_);
  room_ = std::move(room);
}

}  // namespace cohort::engine
