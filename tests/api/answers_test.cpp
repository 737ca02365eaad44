// From requests to bodies and chunks, over the echo service.
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "api/error_body.h"
#include "api/generation.h"
#include "api/openai.h"
#include "base/error.h"
#include "tests/api/answers.h"
#include "tests/support/echo_service.h"

namespace cohort::api {
namespace {

namespace json = boost::json;
using testing::EchoOptions;
using testing::EchoService;

constexpr std::string_view kHello = R"("messages":[{"role":"user","content":"hé 🎉"}])";

std::string chat_body(std::string_view fields) {
  return "{" + std::string(kHello) + (fields.empty() ? "" : ",") + std::string(fields) + "}";
}

template <class Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorKind::kInternal, "");
}

TEST(ChatAnswer, HasTheShapeOfAChatCompletion) {
  EchoService service;
  const Reply reply = whole(chat_completion(service, chat_body(R"("seed":7)")));
  ASSERT_EQ(reply.status, 200);
  json::object body = json::parse(reply.body).as_object();
  EXPECT_TRUE(body["id"].as_string().starts_with("chatcmpl-"));
  EXPECT_GT(body["created"].as_int64(), 1'700'000'000);
  body.erase("id");
  body.erase("created");
  EXPECT_EQ(body, json::parse(R"({
    "object":"chat.completion","model":"echo","system_fingerprint":"cohort-seed-7","seed":7,
    "choices":[{"index":0,"message":{"role":"assistant","content":"user: hé 🎉\n","refusal":null},
                "logprobs":null,"finish_reason":"stop"}],
    "usage":{"prompt_tokens":15,"completion_tokens":16,"total_tokens":31,
             "prompt_tokens_details":{"cached_tokens":0},
             "completion_tokens_details":{"reasoning_tokens":0}}})"));
}

TEST(ChatAnswer, EndsByLengthAtMaxTokens) {
  EchoService service;
  const Reply reply = whole(chat_completion(service, chat_body(R"("max_tokens":4)")));
  const auto choice = json::parse(reply.body).at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "length");
  EXPECT_EQ(choice.at("message").at("content").as_string(), "user");
}

TEST(ChatAnswer, NamesTheModelAsItWasAsked) {
  EchoService service;
  const Reply reply = whole(chat_completion(service, chat_body(R"("model":"echo-alias")")));
  EXPECT_EQ(json::parse(reply.body).at("model").as_string(), "echo-alias");
}

TEST(ChatAnswer, ReportsASeedOf64Bits) {
  EchoService service;
  const Reply reply = whole(chat_completion(service, chat_body(R"("seed":-2)")));
  EXPECT_EQ(json::parse(reply.body).at("seed").as_uint64(), UINT64_MAX - 1);
  EXPECT_EQ(json::parse(reply.body).at("system_fingerprint").as_string(),
            "cohort-seed-18446744073709551614");
}

TEST(ChatStream, OpensWithTheRoleAndEndsWithDone) {
  EchoService service;
  const auto data = streamed(chat_completion(service, chat_body(R"("stream":true,"seed":7)")));
  ASSERT_GT(data.size(), 3u);
  EXPECT_EQ(data.back(), "[DONE]");
  std::string text;
  for (size_t i = 0; i + 1 < data.size(); ++i) {
    json::object chunk = json::parse(data[i]).as_object();
    EXPECT_EQ(chunk["object"].as_string(), "chat.completion.chunk");
    EXPECT_EQ(chunk["id"], json::parse(data[0]).at("id"));
    EXPECT_EQ(chunk["seed"].as_int64(), 7);
    EXPECT_FALSE(chunk.contains("usage"));
    const json::value& choice = chunk["choices"].at(0);
    const json::object& delta = choice.at("delta").as_object();
    EXPECT_EQ(delta.contains("role"), i == 0);
    const bool last = i + 2 == data.size();
    EXPECT_EQ(choice.at("finish_reason"), last ? json::value("stop") : json::value(nullptr));
    EXPECT_EQ(delta.empty(), last);
    if (const auto* content = delta.if_contains("content")) text += content->as_string();
  }
  EXPECT_EQ(text, "user: hé 🎉\n");
}

TEST(ChatStream, GivesUsageInAChunkWithoutChoices) {
  EchoService service;
  const auto data = streamed(chat_completion(
      service, chat_body(R"("stream":true,"stream_options":{"include_usage":true})")));
  ASSERT_GT(data.size(), 3u);
  for (size_t i = 0; i + 2 < data.size(); ++i) {
    EXPECT_TRUE(json::parse(data[i]).at("usage").is_null());
  }
  const auto last = json::parse(data[data.size() - 2]);
  EXPECT_TRUE(last.at("choices").as_array().empty());
  EXPECT_EQ(last.at("usage").at("completion_tokens").as_int64(), 16);
  EXPECT_EQ(last.at("usage").at("prompt_tokens").as_int64(), 15);
}

TEST(ChatStream, NeverSplitsACharacter) {
  EchoService service;
  for (const auto& data : streamed(chat_completion(service, chat_body(R"("stream":true)")))) {
    if (data == "[DONE]") continue;
    json::error_code bad;
    json::parse(data, bad);  // refuses what is not UTF-8
    EXPECT_FALSE(bad) << data;
  }
}

TEST(CompletionAnswer, HasTheShapeOfATextCompletion) {
  EchoService service;
  const Reply reply = whole(completion(service, R"({"prompt":[65,66],"seed":1})"));
  json::object body = json::parse(reply.body).as_object();
  EXPECT_TRUE(body["id"].as_string().starts_with("cmpl-"));
  EXPECT_EQ(body["object"].as_string(), "text_completion");
  EXPECT_EQ(body["choices"], json::parse(R"([{"index":0,"text":"AB","logprobs":null,
                                              "finish_reason":"stop"}])"));
}

TEST(CompletionStream, HasNoOpeningChunk) {
  EchoService service;
  const auto data = streamed(completion(service, R"({"prompt":"AB","stream":true})"));
  ASSERT_EQ(data.size(), 4u);
  EXPECT_EQ(json::parse(data[0]).at("choices").at(0).at("text").as_string(), "A");
  EXPECT_EQ(json::parse(data[2]).at("choices").at(0).at("finish_reason").as_string(), "stop");
  EXPECT_EQ(data[3], "[DONE]");
}

TEST(Failure, OfTheEngineKeepsItsWordsInside) {
  EchoOptions options;
  options.fail_at = 2;
  EchoService service(options);
  const Reply reply = whole(chat_completion(service, chat_body("")));
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(json::parse(reply.body), json::parse(R"({"error":{"message":"internal error",
      "type":"server_error","param":null,"code":null}})"));

  const auto data = streamed(chat_completion(service, chat_body(R"("stream":true)")));
  EXPECT_EQ(json::parse(data.back()).at("error").at("message").as_string(), "internal error");
  for (const auto& chunk : data) EXPECT_EQ(chunk.find("0x7f"), std::string::npos);
}

TEST(Failure, ThatIsTheCallersIsTold) {
  EchoOptions options;
  options.fail_at = 0;
  options.failure = Error(ErrorKind::kInvalidRequest, "all tokens are masked", "logit_bias");
  EchoService service(options);
  const Reply reply = whole(chat_completion(service, chat_body("")));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(json::parse(reply.body).at("error").at("param").as_string(), "logit_bias");
}

TEST(Failure, OfTheModelIsTold) {
  EchoOptions options;
  options.fail_at = 2;
  options.failure = Error(ErrorKind::kModelFailure, "no finite logits");
  EchoService service(options);
  const json::value told = json::parse(R"({"error":{"message":"no finite logits",
      "type":"server_error","param":null,"code":null}})");
  const Reply reply = whole(chat_completion(service, chat_body("")));
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(json::parse(reply.body), told);
  EXPECT_EQ(json::parse(streamed(chat_completion(service, chat_body(R"("stream":true)"))).back()),
            told);
}

TEST(Failure, ByCancellationIsNotAnAnswer) {
  const Reply reply = whole_answer(
      {}, {},
      {{.text = "half", .ids = {1}, .finish = engine::FinishReason::kCancelled, .last = true}});
  EXPECT_EQ(reply.status, 503);
}

TEST(Context, IsNeverCutSilently) {
  EchoOptions options;
  options.context_tokens = 20;
  EchoService service(options);
  const auto ask = [&](std::string fields) {
    return [&service, fields] { return completion(service, "{" + fields + "}"); };
  };
  const Error together = error_of(ask(R"("prompt":"12345","max_tokens":16)"));
  EXPECT_EQ(together.code(), "context_length_exceeded");
  EXPECT_EQ(together.param(), "max_tokens");
  for (const char* number : {"5 tokens", "16", "20", "15"}) {
    EXPECT_NE(std::string(together.what()).find(number), std::string::npos) << together.what();
  }
  EXPECT_EQ(error_of(ask(R"("prompt":"12345678901234567890")")).param(), "prompt");
  EXPECT_EQ(error_of(ask(R"("prompt":"123","max_tokens":9223372036854775807)")).code(),
            "context_length_exceeded");
  EXPECT_EQ(error_of(ask(R"("prompt":"")")).param(), "prompt");
  const std::string long_chat =
      R"({"messages":[{"role":"user","content":"12345678901234567890"}]})";
  EXPECT_EQ(error_of([&] { chat_completion(service, long_chat); }).param(), "messages");
  EXPECT_EQ(whole(ask(R"("prompt":"12345","max_tokens":15)")()).status, 200);

  // Without max_tokens the answer ends at the context.
  const Reply full = whole(ask(R"("prompt":"12345","ignore_eos":true)")());
  EXPECT_EQ(json::parse(full.body).at("usage").at("total_tokens").as_int64(), 20);
  EXPECT_EQ(json::parse(full.body).at("choices").at(0).at("finish_reason").as_string(), "length");
}

TEST(Model, UnknownOneIsNotFound) {
  EchoService service;
  const std::string names[] = {"gpt-4",  "",           "../echo",
                               "Echo",   "echo ",      std::string(4096, 'x'),
                               "%65cho", "\\u0435cho", "echo\\u0000"};
  for (const std::string& name : names) {
    const Error error =
        error_of([&] { chat_completion(service, chat_body("\"model\":\"" + name + "\"")); });
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound) << name;
    EXPECT_EQ(error.code(), "model_not_found");
    EXPECT_EQ(error.param(), "model");
  }
}

TEST(Health, SaysWhatTheModelIsDoing) {
  EchoService service;
  const auto expect = [&](serving::Health health, int status, std::string_view body) {
    service.set_health(health);
    EXPECT_EQ(show_health(service).status, status);
    EXPECT_EQ(show_health(service).body, body);
  };
  expect(serving::Health::kReady, 200, R"({"status":"ok"})");
  expect(serving::Health::kLoading, 503, R"({"status":"loading"})");
  expect(serving::Health::kDraining, 503, R"({"status":"draining"})");
  expect(serving::Health::kDead, 503, R"({"status":"dead"})");
  EXPECT_EQ(error_of([&] { chat_completion(service, chat_body("")); }).kind(),
            ErrorKind::kUnavailable);
}

TEST(Models, ListAllNames) {
  EchoService service;
  const auto list = json::parse(list_models(service).body);
  EXPECT_EQ(list.at("object").as_string(), "list");
  ASSERT_EQ(list.at("data").as_array().size(), 3u);
  EXPECT_EQ(list.at("data").at(0).at("id").as_string(), "echo");
  EXPECT_EQ(json::parse(show_model(service, "org/echo").body).at("object").as_string(), "model");
  EXPECT_EQ(error_of([&] { show_model(service, "other"); }).code(), "model_not_found");
}

TEST(ErrorBody, IsJsonWhateverItQuotes) {
  const auto body = json::parse(error_body(400, "say \"hi\"\n\x01", "a\"b", ""));
  EXPECT_EQ(body.at("error").at("message").as_string(), "say \"hi\"\n\x01");
  EXPECT_EQ(body.at("error").at("param").as_string(), "a\"b");
  EXPECT_TRUE(body.at("error").at("code").is_null());
}

TEST(ErrorBody, SaysWhenToTryAgain) {
  const Reply reply = error_reply(Error(ErrorKind::kOverloaded, "busy"));
  EXPECT_EQ(reply.status, 429);
  ASSERT_EQ(reply.headers.size(), 1u);
  EXPECT_EQ(reply.headers[0].first, "Retry-After");
}

}  // namespace
}  // namespace cohort::api
