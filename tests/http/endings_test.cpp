// Answers that end before their time: clients that leave, a server that stops.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/http/scene.h"

namespace cohort::http {
namespace {

using Disconnect = Http;
using Stop = Http;

TEST_F(Disconnect, MidStreamCancelsAtOnce) {
  echo.token_time = 1ms;
  auto client = connect();
  client.send(complete(kEndless));
  client.read_until("data: ");
  EXPECT_EQ(service().running(), 1u);
  client.close();
  EXPECT_TRUE(within(100ms, [&] { return service().running() == 0; }));
  EXPECT_EQ(service().cancelled(), 1u);
}

TEST_F(Disconnect, ByResetCancelsToo) {
  echo.token_time = 1ms;
  auto client = connect();
  client.send(complete(kEndless));
  client.read_until("data: ");
  client.reset();
  EXPECT_TRUE(within(100ms, [&] { return service().cancelled() == 1; }));
}

class SilentEngine : public Http, public ::testing::WithParamInterface<std::string> {};

TEST_P(SilentEngine, IsCancelledByADisconnect) {
  echo.silent = true;
  auto client = connect();
  client.send(complete(GetParam()));
  ASSERT_TRUE(within(2s, [&] { return service().running() == 1; }));
  std::this_thread::sleep_for(20ms);
  client.close();
  EXPECT_TRUE(within(100ms, [&] { return service().cancelled() == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Forms, SilentEngine, ::testing::Values("", R"(,"stream":true)"));

TEST_P(SilentEngine, IsNotCancelledByAClientThatHasNoMoreToSay) {
  echo.silent = true;
  options.stream_comment_interval = 30ms;
  auto client = connect();
  client.send(complete(GetParam()));
  ASSERT_TRUE(within(2s, [&] { return service().running() == 1; }));
  client.close_writing();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(service().running(), 1u);
  client.close();  // which the client's system tells only who writes to it
  EXPECT_TRUE(within(1s, [&] { return service().cancelled() == 1; }));
}

TEST_F(Disconnect, OfTheSendingSideLeavesTheAnswers) {
  echo.token_time = 1ms;
  auto client = connect();
  const std::string long_answer = R"(,"ignore_eos":true,"max_tokens":50)";
  client.send(complete(long_answer + R"(,"stream":true)") + complete(long_answer));
  client.close_writing();
  EXPECT_TRUE(client.read_response().body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(client.closed_within(1s));
  EXPECT_EQ(service().cancelled(), 0u);
}

TEST_F(Disconnect, OfTheSendingSideEndsWhatHttp10CannotProbe) {
  echo.silent = true;
  auto client = connect();
  const std::string body = R"({"prompt":"ab"})";
  client.send(
      "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(within(2s, [&] { return service().running() == 1; }));
  client.close_writing();
  EXPECT_TRUE(within(1s, [&] { return service().cancelled() == 1; }));
}

TEST_F(Disconnect, OfManyAtOnceFreesThemAll) {
  echo.token_time = 1ms;
  {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 50; ++i) {
      clients.push_back(std::make_unique<RawClient>(server().port()));
      clients.back()->send(complete(i % 2 ? kEndless : R"(,"ignore_eos":true)"));
    }
    ASSERT_TRUE(within(5s, [&] { return service().running() == 50; }));
  }
  EXPECT_TRUE(within(2s, [&] { return service().running() == 0; }));
  EXPECT_EQ(service().cancelled(), 50u);
}

TEST_F(Disconnect, FreesEveryChoice) {
  echo.token_time = 1ms;
  auto client = connect();
  client.send(complete(std::string(kEndless) + R"(,"n":8)"));
  client.read_until("data: ");
  EXPECT_EQ(service().running(), 8u);
  client.reset();
  EXPECT_TRUE(within(100ms, [&] { return service().running() == 0; }));
  EXPECT_EQ(service().cancelled(), 8u);
}

TEST_F(Disconnect, ByFloodingBehindAStreamIsADisconnect) {
  echo.token_time = 1ms;
  auto client = connect();
  client.send(complete(kEndless));
  client.read_until("data: ");
  for (int i = 0; i < 100 && client.send(std::string(10'000, 'x')); ++i) continue;
  EXPECT_TRUE(within(2s, [&] { return service().cancelled() == 1; }));
}

TEST_F(Stop, LetsRunningAnswersEnd) {
  echo.token_time = 1ms;
  auto idle = connect();
  auto client = connect();
  client.send(complete(R"(,"ignore_eos":true,"max_tokens":200,"stream":true)"));
  client.read_until("data: ");
  std::thread stopping([&] { server().stop(); });
  EXPECT_TRUE(idle.closed_within(1s));
  EXPECT_NE(client.read_until("data: [DONE]\n\n").find("[DONE]"), std::string::npos);
  EXPECT_TRUE(client.closed_within(3s));
  client.close();
  stopping.join();
  EXPECT_EQ(service().cancelled(), 0u);
  EXPECT_THROW(connect(), std::runtime_error);
}

TEST_F(Stop, CutsWhatDoesNotEndInTime) {
  echo.silent = true;
  options.drain_timeout = 50ms;
  auto client = connect();
  client.send(complete(""));
  ASSERT_TRUE(within(2s, [&] { return service().running() == 1; }));
  const auto begin = std::chrono::steady_clock::now();
  server().stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_TRUE(within(1s, [&] { return service().cancelled() == 1; }));
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 503);
  EXPECT_NE(response.body.find("\"code\":\"server_draining\""), std::string::npos);
}

TEST_F(Stop, TellsAStreamThatItWasCut) {
  echo.token_time = 1ms;
  options.drain_timeout = 50ms;
  auto client = connect();
  client.send(complete(kEndless));
  client.read_until("\r\n\r\n");
  std::thread stopping([&] { server().stop(); });
  const std::string stream = client.read_until("\r\n0\r\n\r\n");
  EXPECT_NE(stream.find("data: {\"error\":{\"message\":\"the server is shutting down\","
                        "\"type\":\"server_error\",\"param\":null,"
                        "\"code\":\"server_draining\"}}\n\n\r\n0\r\n\r\n"),
            std::string::npos)
      << stream.substr(stream.size() - std::min<size_t>(stream.size(), 400));
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(client.closed_within(1s));
  client.close();
  stopping.join();
  EXPECT_TRUE(within(1s, [&] { return service().cancelled() == 1; }));
}

TEST_F(Stop, WaitsForNoReaderOfTheLastWords) {
  echo.context_tokens = 10'000'000;
  options.drain_timeout = 50ms;
  auto client = connect(4096);
  client.send(complete(R"(,"ignore_eos":true,"temperature":1,"stream":true)"));
  ASSERT_TRUE(within(2s, [&] { return service().tokens_made() > 10'000; }));
  const auto begin = std::chrono::steady_clock::now();
  server().stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  EXPECT_TRUE(within(1s, [&] { return service().cancelled() == 1; }));
}

}  // namespace
}  // namespace cohort::http
