// What a server is watched by: traces of its requests, and metrics.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>

#include "tests/http/scene.h"

namespace cohort::http {
namespace {

namespace json = boost::json;

constexpr const char* kTraceparent =
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";

class Traces : public Http {
 protected:
  Traces() { tracing.keep = 8; }

  /// The last finished trace, once there are `count`.
  std::shared_ptr<const TraceRecord> last_of(size_t count) {
    EXPECT_TRUE(within(2s, [&] { return tracer().recent().size() == count; }));
    const auto recent = tracer().recent();
    return recent.empty() ? std::make_shared<const TraceRecord>() : recent.back();
  }
  RawResponse ask(const std::string& request) {
    auto client = connect();
    client.send(request);
    return client.read_response();
  }
};

std::vector<std::string> names_of(const TraceRecord& record) {
  std::vector<std::string> names;
  for (const Span& span : record.spans) names.emplace_back(span.name);
  return names;
}

const std::vector<std::string> kWhole = {"request.body_parse", "request.prompt",
                                         "response.first_write", "response.last_write"};

TEST_F(Traces, OfAWholeAnswer) {
  ask(post("/v1/completions", R"({"prompt":"secret"})",
           kTraceparent + std::string("X-Request-Id: mine\r\n")));
  const auto record = last_of(1);
  EXPECT_EQ(names_of(*record), kWhole);
  EXPECT_EQ(record->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(record->parent_id, "b7ad6b7169203331");
  EXPECT_EQ(record->request_id, "mine");
  EXPECT_EQ(record->route, "/v1/completions");
  EXPECT_EQ(record->outcome, TraceOutcome::kSuccess);
  for (const Span& span : record->spans) {
    EXPECT_TRUE(record->begin <= span.begin && span.begin <= span.end && span.end <= record->end)
        << span.name;
  }
}

TEST_F(Traces, OfAStream) {
  echo.token_time = 1ms;
  const auto begin = TraceClock::now();
  ask(post("/v1/chat/completions",
           R"({"messages":[{"role":"user","content":"hello"}],"stream":true})"));
  const auto record = last_of(1);
  EXPECT_EQ(names_of(*record), kWhole);
  EXPECT_EQ(record->outcome, TraceOutcome::kSuccess);
  EXPECT_EQ(record->parent_id, "");
  EXPECT_GE(record->spans[3].begin - record->spans[2].begin, 5ms) << "tokens lie between them";
  EXPECT_GE(record->spans[2].begin, begin);
}

TEST_F(Traces, SayThatARequestWasRefused) {
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt":"a","top_p":7})")).status, 400);
  EXPECT_EQ(last_of(1)->outcome, TraceOutcome::kError);
  EXPECT_EQ(names_of(*last_of(1)),
            (std::vector<std::string>{"request.body_parse", "response.first_write",
                                      "response.last_write"}));
}

TEST_F(Traces, SayThatAnAnswerFailed) {
  echo.fail_at = 2;
  ask(complete(R"(,"stream":true)"));
  EXPECT_EQ(last_of(1)->outcome, TraceOutcome::kError);
  ask(complete(""));
  EXPECT_EQ(last_of(2)->outcome, TraceOutcome::kError);
}

TEST_F(Traces, SayThatTheClientLeft) {
  echo.token_time = 1ms;
  for (const bool stream : {true, false}) {
    auto client = connect();
    client.send(complete(stream ? kEndless : R"(,"ignore_eos":true,"max_tokens":4000)"));
    if (stream) client.read_until("data: ");
    ASSERT_TRUE(within(2s, [&] { return service().running() == 1; }));
    client.reset();
    const auto record = last_of(stream ? 1 : 2);
    EXPECT_EQ(record->outcome, TraceOutcome::kAbort);
    for (const std::string& name : names_of(*record)) EXPECT_NE(name, "response.last_write");
  }
}

TEST_F(Traces, AreOfGenerationsOnly) {
  for (const char* path : {"/health", "/v1/models", "/metrics", "/debug/traces", "/nothing"}) {
    ask(get(path));
  }
  ask(complete(""));
  last_of(1);
}

TEST_F(Traces, AreShownWithoutTheTextOfRequests) {
  ask(post("/v1/completions", R"({"prompt":"secret words"})",
           "Authorization: Bearer secret\r\nX-Request-Id: mine\r\n"));
  last_of(1);
  const RawResponse shown = ask(get("/debug/traces"));
  EXPECT_EQ(shown.status, 200);
  EXPECT_EQ(shown.body.find("secret"), std::string::npos);
  const json::value body = json::parse(shown.body);
  const json::object& trace = body.at("traces").at(0).as_object();
  EXPECT_EQ(trace.at("request_id"), "mine");
  EXPECT_EQ(trace.at("outcome"), "success");
  EXPECT_TRUE(trace.at("parent_id").is_null());
  EXPECT_EQ(trace.at("dropped_spans"), 0);
  const auto now = std::chrono::system_clock::now().time_since_epoch() / 1us;
  EXPECT_LT(std::abs(trace.at("begin_unix_us").as_int64() - now), 60'000'000);
  ASSERT_EQ(trace.at("spans").as_array().size(), 4u);
  const json::object& span = trace.at("spans").at(1).as_object();
  EXPECT_EQ(span.at("name"), "request.prompt");
  EXPECT_GE(span.at("begin_us").as_double(), 0);
  EXPECT_GE(span.at("duration_us").as_double(), 0);
}

TEST_F(Http, WithoutTracesSaysHowToGetThem) {
  auto client = connect();
  client.send(get("/debug/traces"));
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 404);
  EXPECT_NE(response.body.find("--debug-traces"), std::string::npos);
}

TEST_F(Http, MetricsAreTextThatCountsRequests) {
  auto client = connect();
  client.send(complete(R"(,"max_tokens":3)"));
  EXPECT_EQ(client.read_response().status, 200);
  client.send(get("/metrics"));
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.head.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            std::string::npos);
  for (const char* line :
       {"\ncohort_requests_ended_total{reason=\"length\"} 1\n", "\n# TYPE cohort_rows gauge\n",
        "\ncohort_prompt_tokens_total 5\n", "\ncohort_generated_tokens_total 3\n",
        "\ncohort_queue_seconds_bucket{le=\"+Inf\"} 0\n", "\ncohort_kv_limit_bytes +Inf\n"}) {
    EXPECT_NE(response.body.find(line), std::string::npos) << line << response.body;
  }
}

}  // namespace
}  // namespace cohort::http
