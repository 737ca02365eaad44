// Who asks: request ids, keys and priorities on their way from the head to the engine.
#include "http/caller.h"

#include <gtest/gtest.h>

#include <set>

#include "base/sha256.h"
#include "tests/http/scene.h"

namespace cohort::http {
namespace {

using Caller = Http;

/// The value of a header of a response; "" without it.
std::string value_of(const RawResponse& response, const std::string& name) {
  const size_t at = response.head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return response.head.substr(begin, response.head.find("\r\n", begin) - begin);
}

std::string digest(std::string_view key) {
  Sha256 sha256;
  sha256.update(std::as_bytes(std::span(key)));
  return sha256.hex().substr(0, 16);
}

TEST(RequestId, IsTheCallersIfItIsShortPrintableAscii) {
  for (const std::string& id : {std::string("a"), std::string(128, 'x'), std::string("a \"b\\~")}) {
    EXPECT_EQ(request_id_of(id), id);
  }
  std::set<std::string> fresh = {request_id_of(std::nullopt)};
  for (const std::string& id : {std::string(), std::string(129, 'x'), std::string("a\tb"),
                                std::string("caf\xc3\xa9"), std::string("a\0b", 3)}) {
    EXPECT_TRUE(request_id_of(id).starts_with("req-")) << id;
    fresh.insert(request_id_of(id));
  }
  EXPECT_EQ(fresh.size(), 6u) << "each is another one";
}

TEST(Session, IsTheFirstThatTheHeadSays) {
  EXPECT_EQ(session_of({}, {}), "");
  EXPECT_EQ(session_of("a", "b"), "a");
  EXPECT_EQ(session_of("", "b"), "b");
  EXPECT_EQ(session_of({}, "b"), "b");
}

TEST(Key, IsTheFirstThatTheHeadSays) {
  EXPECT_EQ(key_of({}, {}), "");
  EXPECT_EQ(key_of("", ""), "");
  EXPECT_EQ(key_of("Bearer sk-1", {}), "sk-1");
  EXPECT_EQ(key_of("bearer  sk-1", {}), "sk-1");
  EXPECT_EQ(key_of({}, "sk-1"), "sk-1");
  EXPECT_EQ(key_of("Bearer sk-1", "sk-2"), "sk-1");
  EXPECT_EQ(key_of("Bearer ", "sk-2"), "sk-2");
  EXPECT_EQ(key_of("Basic abc", "sk-2"), "sk-2") << "what a proxy sends";
  EXPECT_EQ(key_of("Basic abc", {}), "");
  EXPECT_EQ(key_of("Bear", {}), "");
}

TEST(Client, IsADigestOfTheKey) {
  EXPECT_EQ(client_of(""), "");
  EXPECT_EQ(client_of("sk-1"), digest("sk-1"));
  EXPECT_EQ(client_of("sk-1").size(), 16u);
}

TEST_F(Caller, FindsItsRequestIdInEveryAnswer) {
  auto client = connect();
  for (const std::string& request :
       {get("/health", "X-Request-Id: mine\r\n"), get("/nothing", "X-Request-Id: mine\r\n"),
        post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: mine\r\n"),
        post("/v1/completions", R"({"prompt":"a","stream":true})", "X-Request-Id: mine\r\n"),
        post("/v1/completions", R"({"prompt":5})", "X-Request-Id: mine\r\n")}) {
    client.send(request);
    EXPECT_EQ(value_of(client.read_response(), "X-Request-Id"), "mine");
  }
  EXPECT_EQ(service().last_request().id, "mine");
  for (const char* headers :
       {"", "X-Request-Id: caf\xc3\xa9\r\n", "X-Request-Id: one\r\nX-Request-Id: two\r\n"}) {
    client.send(get("/health", headers));
    EXPECT_TRUE(value_of(client.read_response(), "X-Request-Id").starts_with("req-"));
  }
  client.send("nonsense\r\n\r\n");
  const RawResponse malformed = client.read_response();
  EXPECT_EQ(malformed.status, 400);
  EXPECT_TRUE(value_of(malformed, "X-Request-Id").starts_with("req-"));
}

TEST_F(Caller, OwnsAnIdThatItChose) {
  auto client = connect();
  for (const auto& [headers, own] :
       {std::pair("X-Request-Id: req-1\r\n", true), std::pair("", false),
        std::pair("X-Request-Id:\r\n", false),
        std::pair("X-Request-Id: one\r\nX-Request-Id: one\r\n", false)}) {
    client.send(post("/v1/completions", R"({"prompt":"a"})", headers));
    EXPECT_EQ(client.read_response().status, 200);
    EXPECT_EQ(service().last_request().own_id, own) << headers;
  }
}

TEST_F(Caller, NamesItsSessionInTheBodyOrTheHead) {
  auto client = connect();
  const std::string head = "x-session-affinity: c\r\nsession_id: d\r\n";
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {"", "", ""},
      {"", "session_id: d\r\n", "d"},
      {"", head, "c"},
      {R"(,"prompt_cache_key":"b")", head, "b"},
      {R"(,"prompt_cache_key":"a","session_id":"a")", head, "a"},
      {R"(,"prompt_cache_key":"","session_id":"a")", head, "a"},
      {R"(,"prompt_cache_key":"","session_id":"")", head, "c"},
      {"", "session_id: d\r\nsession_id: d\r\n", ""}};
  for (const auto& [fields, headers, expected] : cases) {
    client.send(post("/v1/completions", R"({"prompt":"a")" + fields + "}", headers));
    EXPECT_EQ(client.read_response().status, 200);
    EXPECT_EQ(service().last_request().session, expected) << fields << headers;
  }
}

TEST_F(Caller, IsKnownToTheEngineByADigest) {
  auto client = connect();
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"Authorization: Bearer sk-1\r\n", digest("sk-1")},
      {"x-api-key: sk-1\r\n", digest("sk-1")},
      {"authorization: Bearer a\r\nauthorization: Bearer b\r\n", ""}};
  for (const auto& [headers, expected] : cases) {
    client.send(post("/v1/completions", R"({"prompt":"a"})", headers));
    EXPECT_EQ(client.read_response().status, 200);
    EXPECT_EQ(service().last_request().client, expected) << headers;
  }
}

TEST_F(Caller, SetsItsPriorityInTheBodyOrTheHead) {
  using engine::Priority;
  auto client = connect();
  const auto ask = [&](const std::string& fields, const std::string& headers) {
    client.send(post("/v1/completions", R"({"prompt":"a")" + fields + "}", headers));
    return client.read_response();
  };
  EXPECT_EQ(ask("", "").status, 200);
  EXPECT_EQ(service().last_request().priority, Priority::kNormal);
  EXPECT_EQ(ask("", "X-Priority: high\r\n").status, 200);
  EXPECT_EQ(service().last_request().priority, Priority::kHigh);
  EXPECT_EQ(ask(R"(,"priority":1)", "X-Priority: high\r\n").status, 200);
  EXPECT_EQ(service().last_request().priority, Priority::kLow);
  for (const char* headers :
       {"X-Priority: urgent\r\n", "X-Priority:\r\n", "X-Priority: high\r\nX-Priority: high\r\n"}) {
    const RawResponse refused = ask("", headers);
    EXPECT_EQ(refused.status, 400) << headers;
    EXPECT_NE(refused.body.find(R"("param":"X-Priority")"), std::string::npos);
    EXPECT_NE(refused.body.find("'high', 'normal', 'low'"), std::string::npos);
  }
  EXPECT_NE(ask(R"(,"priority":"urgent")", "").body.find(R"("param":"priority")"),
            std::string::npos);
}

}  // namespace
}  // namespace cohort::http
