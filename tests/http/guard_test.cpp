// Who is let in.
#include "http/guard.h"

#include <gtest/gtest.h>

#include "http/caller.h"

namespace cohort::http {
namespace {

const Guard kGuard{.hosts = {"my-server.lan"}, .origins = {"https://chat.example"}};

int status_for_host(std::string_view host) {
  const auto refusal = kGuard.refuse({.method = "GET", .target = "/health", .hosts = {host}});
  return refusal ? refusal->status : 200;
}

int status_for_origin(std::string_view origin, std::string_view host = "192.168.1.5:8080") {
  const auto refusal =
      kGuard.refuse({.method = "GET", .target = "/health", .hosts = {host}, .origin = origin});
  return refusal ? refusal->status : 200;
}

int status_for_type(std::optional<std::string_view> type,
                    std::optional<std::string_view> encoding = {}) {
  const auto refusal = kGuard.refuse_trusted({.method = "POST",
                                              .target = "/",
                                              .hosts = {"localhost"},
                                              .content_type = type,
                                              .content_encoding = encoding});
  return refusal ? refusal->status : 200;
}

TEST(Guard, LetsInLoopbackNamesAddressesAndListedHosts) {
  for (const auto* host : {"localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]",
                           "[::1]:8080", "192.168.1.5:8080", "my-server.lan", "MY-SERVER.lan:80"}) {
    EXPECT_EQ(status_for_host(host), 200) << host;
  }
}

TEST(Guard, RefusesHostNamesThatAnAttackerCanPointHere) {
  for (const auto* host :
       {"evil.com", "evil.com:8080", "localhost.evil.com", "127.0.0.1.evil.com", "2130706433",
        "0x7f.1", "", ":8080", "localhost:80x", "localhost:80:80", "[::1", "[evil]", "[::1]x",
        "user@localhost", "localhost ", "127.1", "::1"}) {
    EXPECT_EQ(status_for_host(host), 403) << host;
  }
}

TEST(Guard, WantsExactlyOneHost) {
  RequestHead head{.method = "GET", .target = "/", .hosts = {"localhost", "localhost"}};
  EXPECT_EQ(kGuard.refuse(head)->status, 400);
  head.hosts = {};
  EXPECT_EQ(kGuard.refuse(head)->status, 400);
  head.http_1_1 = false;
  EXPECT_FALSE(kGuard.refuse(head));
}

TEST(Guard, WantsAKeyIfThereAreAny) {
  const Guard guard{
      .hosts = {}, .origins = {}, .key_digests = {digest_of("one"), digest_of("two")}};
  const auto status = [&](std::string_view target, std::string_view key,
                          std::string_view method = "GET") {
    const auto refusal = guard.refuse_trusted(
        {.method = method, .target = target, .hosts = {"localhost"}, .key = key});
    return refusal ? refusal->status : 200;
  };
  for (const auto* key : {"one", "two"}) EXPECT_EQ(status("/metrics", key), 200) << key;
  for (const auto* key : {"", "on", "onee", "ONE", "one,two", "three", "\xf0"}) {
    for (const auto* target :
         {"/v1/models", "/metrics", "/debug/traces", "/no/such", "/health/x", "/stats?key=one"}) {
      EXPECT_EQ(status(target, key), 401) << target << ' ' << key;
    }
  }
  EXPECT_EQ(status("/health", ""), 200);
  EXPECT_EQ(status("/v1/chat/completions", "", "OPTIONS"), 200);
}

TEST(Guard, LetsInPagesFromHereAndFromTheList) {
  for (const auto* origin :
       {"http://localhost", "http://localhost:3000", "https://127.0.0.1:8443", "http://[::1]:1",
        "https://chat.example", "HTTPS://CHAT.example", "http://192.168.1.5:8080"}) {
    EXPECT_EQ(status_for_origin(origin), 200) << origin;
  }
}

TEST(Guard, RefusesForeignPages) {
  for (const auto* origin :
       {"null", "", "moz-extension://localhost", "http://evil.com", "http://chat.example",
        "https://chat.example:444", "https://chat.example.evil.com", "http://localhost.evil.com",
        "http://192.168.1.6:8080", "http://192.168.1.5:8081", "file://", "http://",
        "http://evil@localhost", "http://localhost/path"}) {
    EXPECT_EQ(status_for_origin(origin), 403) << origin;
  }
}

TEST(Guard, TakesOnlyPlainJson) {
  EXPECT_EQ(status_for_type("application/json"), 200);
  EXPECT_EQ(status_for_type("Application/JSON ; charset=utf-8"), 200);
  EXPECT_EQ(status_for_type("application/json", "identity"), 200);
  for (const auto* type : {"text/plain", "application/x-www-form-urlencoded", "",
                           "multipart/form-data", "text/plain; application/json"}) {
    EXPECT_EQ(status_for_type(type), 415) << type;
  }
  EXPECT_EQ(status_for_type(std::nullopt), 415);
  for (const auto* encoding : {"gzip", "deflate", "br", "identity, gzip", ""}) {
    EXPECT_EQ(status_for_type("application/json", encoding), 415) << encoding;
  }
}

TEST(Guard, TakesOnlyPathsAsTargets) {
  for (const auto* target : {"*", "http://localhost/health", "localhost:80", ""}) {
    const auto refusal = kGuard.refuse({.method = "GET", .target = target, .hosts = {"localhost"}});
    ASSERT_TRUE(refusal) << target;
    EXPECT_EQ(refusal->status, 400);
  }
}

}  // namespace
}  // namespace cohort::http
