// What is answered, what is refused, and what is too slow or too large.
#include "http/server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/http/scene.h"

namespace cohort::http {
namespace {

using Limits = Http;
using Slowness = Http;
using Backpressure = Http;
using Streams = Http;
using Failure = Http;
using Start = Http;

TEST_F(Http, KeepsAConnectionOverRequests) {
  auto client = connect();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(get("/health")));
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, R"({"status":"ok"})");
    ASSERT_TRUE(client.send(complete("")));
    EXPECT_EQ(client.read_response().status, 200);
    ASSERT_TRUE(client.send(complete(R"(,"stream":true)")));
    EXPECT_TRUE(client.read_response().body.ends_with("data: [DONE]\n\n"));
  }
}

TEST_F(Http, ClosesWhenAsked) {
  auto client = connect();
  client.send(get("/health", "Connection: close\r\n"));
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(client.closed_within(1s));
}

TEST_F(Http, AnswersPipelinedRequestsInOrder) {
  auto client = connect();
  ASSERT_TRUE(
      client.send(complete(R"(,"stream":true)") + get("/nothing") + complete("") + get("/health")));
  EXPECT_TRUE(client.read_response().body.ends_with("[DONE]\n\n"));
  EXPECT_EQ(client.read_response().status, 404);
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(client.read_response().body, R"({"status":"ok"})");
}

TEST_F(Http, KeepsWhatArrivesDuringAStreamForLater) {
  echo.token_time = 2ms;
  auto client = connect();
  client.send(complete(R"(,"ignore_eos":true,"max_tokens":50,"stream":true)"));
  client.read_until("data: ");
  client.send(get("/health"));
  client.read_until("data: [DONE]\n\n");
  client.read_until("0\r\n\r\n");
  EXPECT_EQ(client.read_response().body, R"({"status":"ok"})");
  EXPECT_EQ(service().cancelled(), 0u);
}

TEST_F(Http, SpeaksHttp10) {
  auto client = connect();
  client.send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(client.closed_within(1s));

  auto streaming = connect();
  const std::string body = R"({"prompt":"ab","stream":true})";
  streaming.send(
      "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  const RawResponse response = streaming.read_response();
  EXPECT_EQ(response.head.find("chunked"), std::string::npos);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(Http, TakesChunkedBodiesAndExpect) {
  auto client = connect();
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\n{\"pro\r\n");
  std::this_thread::sleep_for(10ms);
  client.send("b\r\nmpt\":\"abc\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);

  const std::string request =
      post("/v1/completions", R"({"prompt":"abc"})", "Expect: 100-continue\r\n");
  const size_t head = request.find("\r\n\r\n") + 4;
  client.send(request.substr(0, head));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(request.substr(head));
  EXPECT_EQ(client.read_response().status, 200);
}

TEST_F(Http, AnswersHeadAndOptions) {
  auto client = connect();
  client.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const RawResponse head = client.read_response(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.head.find("Content-Length: 15"), std::string::npos);
  client.send(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Origin: http://localhost:3000\r\n"
      "Access-Control-Request-Headers: authorization,x-stainless-os\r\n\r\n");
  const RawResponse preflight = client.read_response();
  EXPECT_EQ(preflight.status, 204);
  for (const char* line :
       {"Allow: POST, OPTIONS\r\n", "Access-Control-Allow-Origin: http://localhost:3000\r\n",
        "Access-Control-Allow-Headers: authorization,x-stainless-os\r\n"}) {
    EXPECT_NE(preflight.head.find(line), std::string::npos) << preflight.head;
  }
  client.send("DELETE /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 405);
}

TEST_F(Http, GivesAForeignPageNothing) {
  auto client = connect();
  client.send(get("/v1/models", "Origin: http://evil.com\r\n"));
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 403);
  EXPECT_EQ(response.head.find("Access-Control"), std::string::npos);
  client.send("GET /v1/models HTTP/1.1\r\nHost: evil.com\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 403);
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
      "Content-Length: 15\r\n\r\n{\"prompt\":\"abc\"}");
  EXPECT_EQ(client.read_response().status, 415);
  EXPECT_EQ(service().tokens_made(), 0u);
}

struct Malformed {
  std::string request;
  int status;  // 0 = closed without a word
};

void PrintTo(const Malformed& malformed, std::ostream* out) {
  *out << malformed.request.substr(0, 100);
}

class MalformedHttp : public Http, public ::testing::WithParamInterface<Malformed> {};

TEST_P(MalformedHttp, IsRefusedAndEndsTheConnection) {
  auto client = connect();
  client.send(GetParam().request);
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, GetParam().status) << response.head;
  client.close_writing();
  EXPECT_TRUE(client.closed_within(3s));
  EXPECT_EQ(service().tokens_made(), 0u);
}

const std::string kPostHead =
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
const std::string kPromptBody = R"({"prompt":"abc"})";  // 16 bytes

INSTANTIATE_TEST_SUITE_P(
    Requests, MalformedHttp,
    ::testing::Values(
        // Two lengths: what one server takes for the end, another takes for a second request.
        Malformed{kPostHead + "Content-Length: 16\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                  400},
        Malformed{kPostHead + "Transfer-Encoding: chunked\r\nContent-Length: 16\r\n\r\n0\r\n\r\n",
                  400},
        Malformed{kPostHead + "Content-Length: 16\r\nContent-Length: 5\r\n\r\n" + kPromptBody, 400},
        Malformed{kPostHead + "Transfer-Encoding: xchunked\r\n\r\n" + get("/health"), 400},
        Malformed{kPostHead + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
        Malformed{kPostHead + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400},
        Malformed{kPostHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"
                              "0\r\n\r\n",
                  400},
        Malformed{
            kPostHead + "Content-Type: text/plain\r\nContent-Length: 16\r\n\r\n" + kPromptBody,
            415},
        Malformed{kPostHead + "Transfer-Encoding: identity\r\n\r\n" + get("/health"), 400},
        Malformed{"GET /health HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        Malformed{kPostHead + "Content-Length: -1\r\n\r\n", 400},
        Malformed{kPostHead + "Content-Length: 16, 5\r\n\r\n" + kPromptBody, 400},
        Malformed{kPostHead + "Content-Length: 0x10\r\n\r\n" + kPromptBody, 400},
        Malformed{kPostHead + "Content-Length: 18446744073709551616\r\n\r\n", 400},
        Malformed{kPostHead + "Content-Length : 16\r\n\r\n" + kPromptBody, 400},
        Malformed{kPostHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
        Malformed{kPostHead + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400},
        Malformed{kPostHead + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
        Malformed{kPostHead + "Expect: miracles\r\nContent-Length: 16\r\n\r\n", 417},
        Malformed{"GET /health HTTP/1.1\nHost: localhost\n\n", 400},
        Malformed{"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 400},
        Malformed{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
        Malformed{"\x16\x03\x01\x02" + std::string(50, '\x01') + "\r\n\r\n", 400},
        Malformed{"GET /health\r\n\r\n", 400},
        Malformed{"GET /hea lth HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        Malformed{"GET /health HTTP/1.1\r\nHo st: localhost\r\n\r\n", 400},
        Malformed{"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\x01"
                  "b\r\n\r\n",
                  400},
        Malformed{"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(70'000, 'x') +
                      "\r\n\r\n",
                  431},
        Malformed{"GET /" + std::string(10 << 20, 'x'), 431}));

TEST_F(Limits, AHundredThousandHeadersAreTooMany) {
  auto client = connect();
  std::string headers;
  for (int i = 0; i < 100'000; ++i) headers += "X-" + std::to_string(i) + ": 1\r\n";
  client.send(get("/health", headers));
  EXPECT_EQ(client.read_response().status, 431);
}

TEST_F(Limits, ALargeBodyIsRefusedBeforeItIsRead) {
  auto client = connect();
  client.send(kPostHead + "Content-Length: 104857600\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 413);
}

TEST_F(Limits, ALargeBodyIsRefusedEvenWhenItIsSentAnyway) {
  auto client = connect();
  client.send(kPostHead + "Content-Length: 40000000\r\n\r\n" + std::string(4'000'000, ' '));
  EXPECT_EQ(client.read_response().status, 413);
}

TEST_F(Limits, AChunkedBodyCountsToo) {
  options.body_bytes_max = 1000;
  auto client = connect();
  client.send(kPostHead + "Transfer-Encoding: chunked\r\n\r\n800\r\n" + std::string(2048, ' ') +
              "\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 413);
}

TEST_F(Limits, BodiesTogetherAreBounded) {
  options.all_bodies_bytes_max = 1000;
  auto first = connect();
  first.send(kPostHead + "Content-Length: 901\r\n\r\n" + std::string(900, ' '));
  auto second = connect();
  ASSERT_TRUE(within(2s, [&] {
    auto probe = connect();
    probe.send(kPostHead + "Content-Length: 200\r\n\r\n" + std::string(200, ' '));
    return probe.read_response().status == 429;
  }));
  first.close();
  EXPECT_TRUE(within(2s, [&] {
    auto probe = connect();
    probe.send(kPostHead + "Content-Length: 200\r\n\r\n" + std::string(200, ' '));
    return probe.read_response().status == 400;  // read, and found not to be JSON
  }));
}

TEST_F(Limits, BodiesThatAreAnnouncedButNotSentTakeNoRoom) {
  options.all_bodies_bytes_max = 1000;
  auto announced = connect(), chunked = connect();
  announced.send(kPostHead + "Content-Length: 900\r\n\r\n{");
  chunked.send(kPostHead + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n");
  for (int i = 0; i < 20; ++i) {
    auto probe = connect();
    probe.send(kPostHead + "Content-Length: 500\r\n\r\n" + std::string(500, ' '));
    EXPECT_EQ(probe.read_response().status, 400) << "read, and found not to be JSON";
  }
}

bool answers(RawClient& client) {
  client.send(get("/health"));
  return client.read_response().status == 200;
}

TEST_F(Limits, AConnectionBeyondThemTakesThePlaceOfTheLongestIdle) {
  options.connections_max = 3;
  auto used = connect(), silent = connect(), young = connect();
  EXPECT_TRUE(answers(young));  // all three are served
  EXPECT_TRUE(answers(used));
  auto next = connect();
  EXPECT_TRUE(answers(next));
  EXPECT_TRUE(silent.closed_within(1s));
  EXPECT_TRUE(answers(used));
  auto last = connect();
  EXPECT_TRUE(answers(last));
  EXPECT_TRUE(young.closed_within(1s));
  EXPECT_TRUE(answers(used));
  EXPECT_TRUE(answers(next));
  EXPECT_TRUE(answers(last));
}

TEST_F(Limits, AFloodOfSilentConnectionsKeepsNobodyOut) {
  options.connections_max = 20;
  std::list<RawClient> flood;
  for (int i = 0; i < 200; ++i) {
    flood.emplace_back(server().port());
    if (i % 10 != 0) continue;
    auto client = connect();
    EXPECT_TRUE(answers(client)) << i;
  }
}

TEST_F(Limits, NorDoesAFloodOfHalfSentRequests) {
  options.connections_max = 20;
  options.arrival_time = 200ms;
  std::list<RawClient> flood;
  for (int i = 0; i < 20; ++i) {
    flood.emplace_back(server().port());
    flood.back().send(i % 2 == 0 ? "GET /health HTTP/1.1\r\nX: "
                                 : kPostHead + "Content-Length: 2\r\n\r\n{");
  }
  auto client = connect();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(answers(client));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << "their own time is longer";
  EXPECT_TRUE(flood.front().closed_within(1s));
}

TEST_F(Limits, AnUploadGivesWayAfterThoseThatAreIdle) {
  options.connections_max = 2;
  options.arrival_time = 100ms;
  auto upload = connect(), idle = connect();
  upload.send(kPostHead + "Content-Length: 2\r\n\r\n{");
  EXPECT_TRUE(answers(idle));
  EXPECT_FALSE(upload.closed_within(200ms)) << "slow, but there is room";
  auto next = connect();
  EXPECT_TRUE(answers(next));
  EXPECT_TRUE(idle.closed_within(1s));
  upload.send("}");
  EXPECT_EQ(upload.read_response().status, 400) << "no prompt";
}

TEST_F(Limits, WhoSendsMuchAndReadsNothingHoldsUpNobodyElse) {
  options.connections_max = 2;
  options.arrival_time = 100ms;
  auto endless = connect(), deaf = connect();
  endless.send(kPostHead + "Content-Length: 20000000\r\n\r\n" + std::string(100'000, ' '));
  std::string requests;
  for (int i = 0; i < 20'000; ++i) requests += get("/nothing");
  std::thread sender([&] { deaf.send(requests); });
  auto client = connect();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(answers(client));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  deaf.close_writing();
  sender.join();
}

TEST_F(Limits, AConnectionBeyondThemWaitsWhileAllOthersAreInUse) {
  options.arrival_time = 60s;
  echo.token_time = 1ms;
  options.connections_max = 2;
  auto stream = connect(), upload = connect();
  stream.send(complete(kEndless));
  stream.read_until("data: ");
  upload.send(kPostHead + "Content-Length: 2\r\n\r\n{");
  EXPECT_TRUE(within(5s, [&] { return service().running() == 1; }));
  auto third = connect();
  third.send(get("/health"));
  EXPECT_FALSE(third.closed_within(100ms));
  upload.send("}");
  EXPECT_EQ(upload.read_response().status, 400) << "no prompt";
  EXPECT_EQ(third.read_response().status, 200) << "in the place of the one that is idle now";
  EXPECT_TRUE(upload.closed_within(1s));
  EXPECT_NE(stream.read_until("data: "), "");
}

TEST_F(Limits, OfFileDescriptorsKeepNobodyOut) {
  auto silent = connect(), second = connect(), used = connect();
  EXPECT_TRUE(answers(used));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int free = ::dup(0);
  ::close(free);
  const rlimit one_more{.rlim_cur = static_cast<rlim_t>(free) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  auto next = connect();  // with this, none is left for the server's end
  EXPECT_TRUE(answers(next));
  EXPECT_TRUE(silent.closed_within(1s));
  EXPECT_TRUE(second.closed_within(1s)) << "to have one for who comes next";
  EXPECT_TRUE(answers(used));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(Slowness, OfAHeadOrBodyEndsTheConnection) {
  options.idle_timeout = 2s;
  options.header_timeout = 100ms;
  options.body_timeout = 100ms;
  auto slow_head = connect();
  auto slow_body = connect();
  slow_body.send(kPostHead + "Content-Length: 16\r\n\r\n{");
  const auto begin = std::chrono::steady_clock::now();
  bool open = true;
  for (int i = 0; i < 100 && open; ++i) {
    open = slow_head.send(i == 0 ? "GET /health HTTP/1.1\r\nX: " : "x");
    slow_body.send(" ");
    open = open && !slow_head.closed_within(20ms);
  }
  EXPECT_FALSE(open);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1500ms);
  EXPECT_TRUE(slow_body.closed_within(1s));
}

TEST_F(Slowness, OfAnIdleConnectionEndsIt) {
  options.idle_timeout = 100ms;
  auto client = connect();
  EXPECT_TRUE(client.closed_within(1s));
}

TEST_F(Backpressure, AReaderThatNeverReadsHoldsTheEngineAndIsCutOff) {
  echo.context_tokens = 10'000'000;
  options.write_timeout = 500ms;
  auto client = connect(4096);
  client.send(complete(R"(,"ignore_eos":true,"temperature":1,"stream":true)"));
  size_t before = 0;
  ASSERT_TRUE(within(5s, [&] {
    const size_t now = service().tokens_made();
    const bool stopped = now > 0 && now == before;
    before = now;
    std::this_thread::sleep_for(50ms);
    return stopped;
  }));
  EXPECT_LT(service().tokens_made(), 100'000u);
  EXPECT_TRUE(within(3s, [&] { return service().cancelled() == 1; }));
}

TEST_F(Streams, SendCommentsWhileTheEngineIsSilent) {
  echo.silent = true;
  options.stream_comment_interval = 30ms;
  auto client = connect();
  client.send(complete(R"(,"stream":true)"));
  EXPECT_NE(client.read_until(": waiting\n\n").find("text/event-stream"), std::string::npos);
  EXPECT_TRUE(client.read_until(": waiting\n\n").ends_with(": waiting\n\n"));
}

TEST_F(Streams, OfManyClientsAreComplete) {
  std::vector<std::thread> threads;
  std::atomic<int> complete_answers = 0;
  server();  // before the threads look
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      auto client = connect();
      for (int i = 0; i < 10; ++i) {
        client.send(complete(R"(,"ignore_eos":true,"max_tokens":200,"stream":true)"));
        const RawResponse response = client.read_response();
        std::string_view body = response.body;
        size_t chunks = 0;
        for (size_t at = 0; (at = body.find("\"text\":\"", at)) != std::string_view::npos; ++at) {
          ++chunks;
        }
        complete_answers += body.ends_with("data: [DONE]\n\n") && chunks >= 100;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(complete_answers, 80);
}

size_t count_of(std::string_view part, std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; ++at) ++count;
  return count;
}

TEST_F(Streams, OfSeveralChoicesEndWithTheLastOne) {
  // With letters of their own the choices meet the stop string at different times.
  constexpr std::string_view kChoices =
      R"(,"n":8,"temperature":1,"seed":1,"stop":"e","max_tokens":300)";
  auto client = connect();
  client.send(complete(std::string(kChoices) + R"(,"stream":true)"));
  const RawResponse streamed = client.read_response();
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(count_of("[DONE]", streamed.body), 1u);
  EXPECT_EQ(count_of(R"("finish_reason":"stop")", streamed.body), 8u);
  client.send(complete(kChoices));
  const RawResponse whole = client.read_response();
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(count_of(R"("finish_reason":"stop")", whole.body), 8u);
  EXPECT_TRUE(within(1s, [&] { return service().running() == 0; }));
  EXPECT_EQ(service().cancelled(), 0u);
}

TEST_F(Backpressure, HoldsAllChoicesAndLetsThemGo) {
  echo.context_tokens = 10'000;
  auto client = connect(4096);
  client.send(complete(R"(,"n":8,"ignore_eos":true,"max_tokens":2000,"stream":true)"));
  std::this_thread::sleep_for(100ms);
  const RawResponse response = client.read_response();
  EXPECT_EQ(count_of(R"("finish_reason":"length")", response.body), 8u);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(Failure, MidStreamEndsWithoutDone) {
  echo.fail_at = 2;
  auto client = connect();
  client.send(complete(R"(,"stream":true)"));
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.body.ends_with(
      "data: {\"error\":{\"message\":\"internal error\",\"type\":\"server_error\","
      "\"param\":null,\"code\":null}}\n\n"));
  EXPECT_EQ(response.body.find("[DONE]"), std::string::npos);
  client.send(complete(""));
  EXPECT_EQ(client.read_response().status, 500);
}

TEST_F(Failure, OfTheTemplateIsTheCallers) {
  auto client = connect();
  client.send(
      post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"refuse me"}]})"));
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find(R"(the chat template refuses: \"refuse me\")"), std::string::npos);
}

TEST_F(Start, LeavesFilesToOthersWhateverConnectionsTake) {
  rlimit before{}, after{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit usual{.rlim_cur = 256, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  server();
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &after), 0);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GE(after.rlim_cur, std::min<rlim_t>(before.rlim_max, options.connections_max + 100));
}

TEST_F(Start, OnAPortInUseSaysSo) {
  options.port = server().port();
  Server second(api::openai_routes(service()), options);
  try {
    second.start();
    FAIL() << "the port is taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("Address already in use"), std::string::npos);
  }
}

}  // namespace
}  // namespace cohort::http
