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
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
    open_choices_ = 0;
    cancelled_ = true;
  } else if (event.finish) {
    --open_choices_;
  }
  event.last = open_choices_ == 0;
  if (event.last) room_ = nullptr;  // whoever looks from now on has no engine to wake
  events_.push_back(std::move(event));
  arrived_.notify_one();
  if (wake_) wake_();
}

bool Stream::full() const {
  std::lock_guard lock(mutex_);
  return events_.size() >= capacity_;
}

bool Stream::ended() const {
  std::lock_guard lock(mutex_);
  return open_choices_ == 0;
}

void Stream::on_room(std::function<void()> room) {
  std::lock_guard lock(mutex_);
  room_ = std::move(room);
}

}  // namespace cohort::engine
