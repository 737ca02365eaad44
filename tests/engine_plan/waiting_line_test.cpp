// Whose turn it is, in what the stories of tests/schedules/loop do not tell: shares and bounds.

#include "engine/waiting_line.h"

#include <gtest/gtest.h>

#include <map>

namespace cohort::engine {
namespace {

constexpr Clock::time_point kNow{};

Submission request(const std::string& client, size_t tokens,
                   Priority priority = Priority::kNormal) {
  Submission submission;
  submission.request.client = client;
  submission.request.prompt.resize(tokens);
  submission.request.priority = priority;
  submission.stream = std::make_shared<Stream>(tokens, 0);
  submission.arrived = kNow;
  return submission;
}

TEST(WaitingLine, ClientsGetEqualSharesOfTokensWhateverTheirRequestsAreLike) {
  WaitingLine line;
  std::map<std::string, size_t> sizes{{"few", 3000}, {"many", 600}, {"some", 700}};
  for (const auto& [client, tokens] : sizes) {
    for (size_t sent = 0; sent < 60000; sent += tokens) line.push(request(client, tokens));
  }
  std::map<std::string, int64_t> got;
  for (int64_t served = 0; served < 90000;) {
    ASSERT_NE(line.next(kNow), nullptr);
    const Submission taken = line.take();
    const auto tokens = static_cast<int64_t>(taken.request.prompt.size());
    got[taken.request.client] += tokens;
    served += tokens;
  }
  for (const auto& [client, tokens] : got)
    EXPECT_NEAR(static_cast<double>(tokens), 30000, 6000) << client;
}

TEST(WaitingLine, AClientThatComesLateIsNextAfterOneTurn) {
  WaitingLine line;
  for (int i = 0; i < 500; ++i) line.push(request("flood", 100));
  for (int i = 0; i < 6; ++i) {
    line.next(kNow);
    line.take();
  }
  line.push(request("late", 1));
  int before = 0;
  while (line.next(kNow)->request.client != "late") {
    line.take();
    ++before;
  }
  EXPECT_LE(before, 4) << "one turn";
}

TEST(WaitingLine, CreditCannotBeSavedUpByLeaving) {
  WaitingLine line;
  for (int round = 0; round < 50; ++round) {
    line.push(request("a", 10));
    line.next(kNow);
    line.take();
  }
  EXPECT_TRUE(line.empty());
  line.push(request("a", 4000));
  line.push(request("b", 100));
  EXPECT_EQ(line.next(kNow)->request.client, "b");
}

TEST(WaitingLine, NextStaysUntilSomethingChanges) {
  WaitingLine line;
  line.push(request("a", 10));
  line.push(request("b", 10));
  const Submission* next = line.next(kNow);
  EXPECT_EQ(line.next(kNow), next);
  line.push(request("c", 10, Priority::kHigh));
  EXPECT_EQ(line.next(kNow)->request.client, "c") << "somebody more urgent came";
  EXPECT_EQ(line.take().request.client, "c");
  EXPECT_EQ(line.next(kNow), next);
}

TEST(WaitingLine, WhoIsGoneIsTakenOutWhereverItStands) {
  WaitingLine line;
  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < 6; ++i) {
    Submission submission = request(i % 2 == 0 ? "a" : "b", 10);
    streams.push_back(submission.stream);
    line.push(std::move(submission));
  }
  line.next(kNow);
  for (size_t i : {0, 1, 5}) streams[i]->cancel();
  EXPECT_EQ(line.take_cancelled().size(), 3U);
  EXPECT_EQ(line.size(), 3U);
  while (const Submission* next = line.next(kNow)) {
    EXPECT_FALSE(next->stream->cancelled());
    line.take();
  }
  EXPECT_TRUE(line.empty());
}

}  // namespace
}  // namespace cohort::engine
