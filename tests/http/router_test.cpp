// Which handler a path finds, and what becomes of its exceptions.
#include "http/router.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace cohort::http {
namespace {

api::Outcome named(const std::string& name) {
  return api::Reply{.body = name};
}

const Router kRouter({
    {"GET", "/v1/models", api::Work::kQuick, [](const api::Call&) { return named("list"); }},
    {"GET", "/v1/models/*", api::Work::kQuick,
     [](const api::Call& call) { return named(call.path_rest); }},
    {"POST", "/v1/chat", api::Work::kHeavy,
     [](const api::Call&) -> api::Outcome { throw std::runtime_error("0x7f00 in /srv"); }},
    {"POST", "/v1/busy", api::Work::kHeavy,
     [](const api::Call&) -> api::Outcome { fail(ErrorKind::kOverloaded, "busy"); }},
});

/// The status of a reply, or what the matched path's '*' took.
std::string outcome_of(std::string_view method, std::string_view target) {
  const auto found = kRouter.find(method, target);
  if (const auto* reply = std::get_if<api::Reply>(&found)) return std::to_string(reply->status);
  return std::get<Match>(found).route->path + "|" + std::get<Match>(found).path_rest;
}

TEST(Router, ComparesPathsByteForByte) {
  EXPECT_EQ(outcome_of("GET", "/v1/models"), "/v1/models|");
  EXPECT_EQ(outcome_of("GET", "/v1/models?x=/v1/chat"), "/v1/models|");
  for (const auto* target : {"//v1/models", "/v1//models", "/v1/./models", "/v1/x/../models",
                             "/v1/%6dodels", "/V1/models", "/", "/v1/models#x", "/v1/chat/"}) {
    EXPECT_EQ(outcome_of("GET", target), "404") << target;
  }
}

TEST(Router, DecodesWhatAStarMatched) {
  EXPECT_EQ(outcome_of("GET", "/v1/models/org/name"), "/v1/models/*|org/name");
  EXPECT_EQ(outcome_of("GET", "/v1/models/org%2Fname"), "/v1/models/*|org/name");
  EXPECT_EQ(outcome_of("GET", "/v1/models/%2e%2e"), "/v1/models/*|..");
  for (const auto* target : {"/v1/models/", "/v1/models/%", "/v1/models/%2", "/v1/models/%zz",
                             "/v1/models/% 1", "/v1/models/%-1"}) {
    EXPECT_EQ(outcome_of("GET", target), "404") << target;
  }
}

TEST(Router, AnswersMethods) {
  EXPECT_EQ(outcome_of("HEAD", "/v1/models"), "/v1/models|");
  EXPECT_EQ(outcome_of("OPTIONS", "/v1/models"), "204");
  for (const auto* method : {"POST", "PUT", "DELETE", "TRACE", "get", ""}) {
    EXPECT_EQ(outcome_of(method, "/v1/models"), "405") << method;
  }
  const auto found = kRouter.find("GET", "/v1/chat");
  const auto& reply = std::get<api::Reply>(found);
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.headers.front(), (std::pair<std::string, std::string>("Allow", "POST, OPTIONS")));
}

TEST(Router, TurnsExceptionsIntoReplies) {
  std::string failure;
  const auto run = [&](std::string_view path) {
    const auto match = std::get<Match>(kRouter.find("POST", path));
    return std::get<api::Reply>(kRouter.run(*match.route, {}, failure));
  };
  EXPECT_EQ(run("/v1/busy").status, 429);
  EXPECT_EQ(failure, "");
  const api::Reply reply = run("/v1/chat");
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.body.find("0x7f00"), std::string::npos);
  EXPECT_EQ(failure, "0x7f00 in /srv");
}

}  // namespace
}  // namespace cohort::http
