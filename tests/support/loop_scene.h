#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "engine/loop.h"
#include "kernels/cpu/cpu.h"
#include "tests/support/fake_forward.h"
#include "tests/support/scene_tokenizer.h"

namespace cohort::test {

/// A loop over the fake model, stepped by hand, with the consumers of its requests. Checks after
/// every step that all tokens are those that the request alone would have got.
class LoopScene {
 public:
  struct Consumer {
    engine::Request request;
    int64_t max_tokens = 0;
    std::shared_ptr<engine::Stream> stream;
    bool reads = true;
    std::vector<std::vector<int32_t>> ids;  // by choice
    std::vector<std::string> ends;          // by choice; "" = none yet
    bool over = false;
    std::string error;
  };

  explicit LoopScene(engine::EngineOptions options = {},
                     const FakeForward::Layers& layers = FakeForward::layers(),
                     std::set<int32_t> end_tokens = {})
      : precision(FakeForward::precision(layers.size())), layers_(layers), forward_(layers) {
    options.now = [this] { return now_; };
    loop_.emplace(forward_, layers, cpu_, scene_tokenizer(), std::move(end_tokens),
                  std::move(options), stats_);
    forward_.on_run = [this](std::span<const model::TokenGroup> groups) { run_forward(groups); };
    forward_.on_logits = [this](int32_t id, std::span<float> logits) {
      if (failing_samples.contains(FakeForward::request_of(id))) {
        std::ranges::fill(logits, std::numeric_limits<float>::quiet_NaN());
      }
    };
  }

  Consumer& submit(int32_t number, int64_t prompt, int64_t max_tokens, engine::Request request = {},
                   size_t capacity = 1) {
    request.id = std::to_string(number);
    if (request.prompt.empty()) request.prompt = FakeForward::prompt(number, prompt);
    auto stream =
        std::make_shared<engine::Stream>(request.prompt.size(), 0, capacity, request.choices);
    Consumer& consumer = consumers[number];
    consumer = {request, max_tokens, stream, true, {}, {}, false, {}};
    consumer.ids.resize(static_cast<size_t>(request.choices));
    consumer.ends.resize(consumer.ids.size());
    stats_.waiting += 1;
    stats_.waiting_tokens += request.prompt.size();
    loop_->accept({std::move(request), {.temperature = 0}, max_tokens, precision, stream, now_});
    return consumer;
  }

  /// One iteration; then all consumers that read do.
  ///   returns  its groups by request: "1:1* 2:30", "nothing"; choices after the first are "1.2:1*"
  std::string step() {
    const int forwards = forward_.forwards;
    packed_.clear();
    learn_names();
    const engine::Plan plan = loop_->step();
    learn_names();
    EXPECT_LE(forward_.forwards - forwards, 2) << "one forward, and one more if it failed";
    EXPECT_EQ(packed_.size(), plan.groups.size());
    std::string text;
    for (size_t i = 0; i < plan.groups.size(); ++i) {
      const engine::PlannedGroup& group = plan.groups[i];
      // A row that came and went within the step is named after its tokens.
      const auto known = names_.find(group.id);
      text += (i == 0 ? "" : " ") +
              (known == names_.end() ? std::to_string(packed_[i]) : known->second) + ":" +
              std::to_string(group.tokens) + (group.samples ? "*" : "");
    }
    last_plan = plan;
    read_all();
    loop_->check_integrity();
    return text.empty() ? "nothing" : text;
  }

  void read_all() {
    for (auto& [number, consumer] : consumers) {
      if (consumer.reads) read(consumer);
    }
  }

  /// Steps until nothing moves, and nothing is being read from SSD.
  ///   returns  how many steps that took; fails after `most`
  int64_t run(int64_t most) {
    for (int64_t steps = 0; steps < most;) {
      const bool moved = step() != "nothing" || loop_->stirred();
      const bool reads = std::ranges::any_of(
          loop_->rows(), [](const engine::Row& row) { return row.ticket() != 0; });
      if (!moved && !reads) return steps;
      steps += moved;
      if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    ADD_FAILURE() << "still moving after " << most << " steps";
    return most;
  }

  engine::Loop& loop() { return *loop_; }
  engine::EngineStats& stats() { return stats_; }
  FakeForward& forward() { return forward_; }
  void advance(std::chrono::nanoseconds by) { now_ += by; }

  std::map<int32_t, Consumer> consumers;
  std::set<int32_t> failing_forwards, failing_samples;  // numbers of requests
  kv::RowPrecision precision;                           // of requests from now on
  engine::Plan last_plan;
  /// What a forward of so many tokens takes.
  std::function<std::chrono::nanoseconds(int64_t tokens)> cost;

 private:
  void learn_names() {
    for (const engine::Row& row : loop_->rows()) {
      names_[row.id()] = row.submission().request.id;
      if (row.choice() > 0) names_[row.id()] += "." + std::to_string(row.choice());
    }
  }

  void run_forward(std::span<const model::TokenGroup> groups) {
    const bool again = !packed_.empty();
    int64_t tokens = 0;
    bool fails = false;
    for (const model::TokenGroup& group : groups) {
      const int32_t number = FakeForward::request_of(group.ids.front());
      if (!again) packed_.push_back(number);
      tokens += static_cast<int64_t>(group.ids.size());
      fails = fails || failing_forwards.contains(number);
    }
    if (cost) now_ += cost(tokens);
    if (fails) throw std::runtime_error("no forward");
  }

  void read(Consumer& consumer) {
    for (engine::TokenEvent& event : consumer.stream->drain()) {
      ASSERT_FALSE(consumer.over) << "nothing follows the last event";
      consumer.over = event.last;
      if (event.error) consumer.error = event.error->what();
      const bool for_all = event.finish == engine::FinishReason::kError ||
                           event.finish == engine::FinishReason::kCancelled;
      if (for_all) {
        ASSERT_TRUE(event.last);
        std::ranges::replace(consumer.ends, "", word(*event.finish));
        continue;
      }
      const auto choice = static_cast<size_t>(event.choice);
      ASSERT_LT(choice, consumer.ids.size());
      auto& ids = consumer.ids[choice];
      ASSERT_TRUE(consumer.ends[choice].empty()) << "nothing follows the end of a choice";
      for (int32_t id : event.ids) {
        std::vector<int32_t> all = consumer.request.prompt;
        all.insert(all.end(), ids.begin(), ids.end());
        ASSERT_EQ(id, FakeForward::next(all, layers_))
            << "request " << consumer.request.id << "." << choice << ", token " << ids.size();
        ids.push_back(id);
      }
      if (event.finish) consumer.ends[choice] = word(*event.finish);
      if (event.finish == engine::FinishReason::kLength) {
        ASSERT_EQ(static_cast<int64_t>(ids.size()), consumer.max_tokens);
      }
    }
  }

  static const char* word(engine::FinishReason reason) {
    switch (reason) {
      case engine::FinishReason::kStop:
        return "stop";
      case engine::FinishReason::kLength:
        return "length";
      case engine::FinishReason::kCancelled:
        return "cancelled";
      case engine::FinishReason::kError:
        break;
    }
    return "error";
  }

  engine::Clock::time_point now_{};
  const FakeForward::Layers layers_;
  FakeForward forward_;
  kernels::cpu::Cpu cpu_{1};
  engine::EngineStats stats_;
  std::optional<engine::Loop> loop_;
  std::vector<int32_t> packed_;  // requests of the groups of the step's first forward
  std::map<engine::RowId, std::string> names_;  // of rows that outlived a step
};

}  // namespace cohort::test
