#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/stream.h"

namespace cohort::test {

/// Looks again and again until `holds`, at most `patience`.
inline bool eventually(const std::function<bool()>& holds,
                       std::chrono::seconds patience = std::chrono::seconds(30)) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

/// What a consumer got out of a stream.
struct Answer {
  std::string text;
  std::vector<int32_t> ids;
  std::optional<engine::FinishReason> finish;
  std::optional<Error> error;

  void take(std::vector<engine::TokenEvent> events) {
    for (engine::TokenEvent& event : events) {
      EXPECT_FALSE(finish) << "nothing follows the last event";
      text += event.text;
      ids.insert(ids.end(), event.ids.begin(), event.ids.end());
      finish = event.finish;
      error = std::move(event.error);
      EXPECT_EQ(error.has_value(), finish == engine::FinishReason::kError);
    }
  }
};

/// Drains a stream to its end.
inline Answer collect(engine::Stream& stream) {
  Answer answer;
  EXPECT_TRUE(eventually([&] {
    answer.take(stream.drain());
    return answer.finish.has_value();
  })) << "the stream never ended; tokens so far: "
      << answer.ids.size();
  return answer;
}

}  // namespace cohort::test
