// Answers of several choices, and the logprobs of their tokens, over the echo service.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <cmath>
#include <map>

#include "api/logprobs.h"
#include "tests/api/answers.h"
#include "tests/support/echo_service.h"

namespace cohort::api {
namespace {

namespace json = boost::json;
using testing::EchoOptions;
using testing::EchoService;

// Letters that depend on the seed.
constexpr std::string_view kDrawn = R"("temperature":1,"seed":7,"max_tokens":5)";

std::string ask(std::string_view fields) {
  return fmt::format(R"({{"prompt":"ab",{}}})", fields);
}

std::string say(std::string_view fields) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"hé 🎉"}}],{}}})", fields);
}

/// The chunks of each choice of a stream, in order.
std::map<int64_t, std::vector<json::object>> by_choice(const std::vector<std::string>& data) {
  std::map<int64_t, std::vector<json::object>> chunks;
  for (const std::string& one : data) {
    if (one == "[DONE]") continue;
    const json::value chunk = json::parse(one);
    for (const json::value& choice : chunk.at("choices").as_array()) {
      chunks[choice.at("index").as_int64()].push_back(choice.as_object());
    }
  }
  return chunks;
}

std::string content_of(const std::vector<json::object>& chunks) {
  std::string text;
  for (const json::object& chunk : chunks) {
    if (const auto* content = chunk.at("delta").as_object().if_contains("content")) {
      text += content->as_string();
    }
  }
  return text;
}

TEST(Choices, OfAWholeAnswerAreInOrderOfTheirIndex) {
  EchoService service;
  const json::value body = json::parse(
      whole(completion(service, ask(fmt::format(R"({},"n":3,"stop":"e")", kDrawn)))).body);
  ASSERT_EQ(body.at("choices").as_array().size(), 3u);
  int64_t tokens = 0;
  for (int i = 0; i < 3; ++i) {
    const json::object& choice = body.at("choices").at(static_cast<size_t>(i)).as_object();
    EXPECT_EQ(choice.at("index").as_int64(), i);
    const json::value alone = json::parse(
        whole(completion(service,
                         ask(fmt::format(R"("temperature":1,"seed":{},"max_tokens":5,"stop":"e")",
                                         7 + i))))
            .body);
    EXPECT_EQ(choice.at("text"), alone.at("choices").at(0).at("text"));
    EXPECT_EQ(choice.at("finish_reason"), alone.at("choices").at(0).at("finish_reason"));
    tokens += alone.at("usage").at("completion_tokens").as_int64();
  }
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 2);
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), tokens);
  EXPECT_EQ(body.at("usage").at("total_tokens").as_int64(), tokens + 2);
  EXPECT_EQ(body.at("seed").as_int64(), 7);
}

TEST(Choices, OfAStreamOpenAndEndOnceEach) {
  EchoService service;
  const std::string fields = fmt::format(R"({},"n":4)", kDrawn);
  const json::value answer = json::parse(whole(chat_completion(service, say(fields))).body);
  const auto data = streamed(chat_completion(
      service, say(fields + R"(,"stream":true,"stream_options":{"include_usage":true})")));
  const auto chunks = by_choice(data);
  ASSERT_EQ(chunks.size(), 4u);
  for (const auto& [index, list] : chunks) {
    for (size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(list[i].at("delta").as_object().contains("role"), i == 0);
      EXPECT_EQ(list[i].at("finish_reason").is_null(), i + 1 < list.size());
      EXPECT_TRUE(list[i].at("logprobs").is_null());
    }
    const json::value& expected = answer.at("choices").at(static_cast<size_t>(index));
    EXPECT_EQ(content_of(list), expected.at("message").at("content").as_string());
    EXPECT_EQ(list.back().at("finish_reason"), expected.at("finish_reason"));
  }
  EXPECT_EQ(std::ranges::count(data, "[DONE]"), 1);
  EXPECT_EQ(data.back(), "[DONE]");
  size_t usages = 0;
  for (size_t i = 0; i + 1 < data.size(); ++i) {
    usages += json::parse(data[i]).at("usage").is_object() ? 1 : 0;
  }
  EXPECT_EQ(usages, 1u);
  EXPECT_EQ(json::parse(data[data.size() - 2]).at("usage"), answer.at("usage"));
}

TEST(Choices, FailTogether) {
  EchoOptions options;
  options.fail_at = 3;
  options.fail_choice = 1;
  EchoService service(options);
  const Reply reply = whole(completion(service, ask(R"("n":3,"ignore_eos":true)")));
  EXPECT_EQ(reply.status, 500);
  EXPECT_TRUE(json::parse(reply.body).as_object().contains("error"));
  const auto data = streamed(completion(service, ask(R"("n":3,"ignore_eos":true,"stream":true)")));
  EXPECT_TRUE(json::parse(data.back()).as_object().contains("error"));
  for (size_t i = 0; i + 1 < data.size(); ++i) {
    EXPECT_FALSE(json::parse(data[i]).as_object().contains("error"));
  }
}

TEST(ChatLogprobs, NameEachTokenAndItsAlternatives) {
  EchoService service;
  const json::value body =
      json::parse(whole(chat_completion(service, say(R"("logprobs":true,"top_logprobs":2)"))).body);
  const json::object& logprobs = body.at("choices").at(0).at("logprobs").as_object();
  EXPECT_TRUE(logprobs.at("refusal").is_null());
  const json::array& content = logprobs.at("content").as_array();
  const std::string text(body.at("choices").at(0).at("message").at("content").as_string());
  ASSERT_EQ(content.size(), text.size()) << "the end token has no score";
  const double half = std::log(0.5f), quarter = -2 * std::log(2.0f);
  EXPECT_EQ(content.at(0),
            (json::value{{"token", "u"},
                         {"logprob", half},
                         {"bytes", {117}},
                         {"top_logprobs",
                          {{{"token", "u"}, {"logprob", half}, {"bytes", {117}}},
                           {{"token", "v"}, {"logprob", quarter}, {"bytes", {118}}}}}}));
  std::string bytes;
  for (const json::value& token : content) {
    for (const json::value& byte : token.at("bytes").as_array()) {
      bytes += static_cast<char>(byte.as_int64());
    }
  }
  EXPECT_EQ(bytes, text);
  EXPECT_EQ(content.at(7).at("token").as_string(), "\uFFFD") << "a byte of é";
}

TEST(ChatLogprobs, CountNoAlternativesUnlessAsked) {
  EchoService service;
  const json::value body =
      json::parse(whole(chat_completion(service, say(R"("logprobs":true,"n":2)"))).body);
  for (const json::value& choice : body.at("choices").as_array()) {
    for (const json::value& token : choice.at("logprobs").at("content").as_array()) {
      EXPECT_TRUE(token.at("top_logprobs").as_array().empty());
    }
  }
}

TEST(ChatLogprobs, ComeWithTheChunkThatBringsTheirTokens) {
  EchoService service;
  const std::string fields = R"("logprobs":true,"top_logprobs":1,"n":2)";
  const json::value answer = json::parse(whole(chat_completion(service, say(fields))).body);
  const auto chunks =
      by_choice(streamed(chat_completion(service, say(fields + R"(,"stream":true)"))));
  ASSERT_EQ(chunks.size(), 2u);
  for (const auto& [index, list] : chunks) {
    json::array content;
    bool scored_without_text = false;
    for (const json::object& chunk : list) {
      const json::value& logprobs = chunk.at("logprobs");
      const json::object& delta = chunk.at("delta").as_object();
      const bool piece = chunk.at("finish_reason").is_null() && !delta.contains("role");
      EXPECT_EQ(logprobs.is_object(), piece);
      if (!piece) continue;
      scored_without_text |= delta.at("content").as_string().empty();
      EXPECT_EQ(logprobs.at("content").as_array().size(), 1u);
      content.push_back(logprobs.at("content").at(0));
    }
    EXPECT_TRUE(scored_without_text) << "the first bytes of é and 🎉";
    EXPECT_EQ(content, answer.at("choices")
                           .at(static_cast<size_t>(index))
                           .at("logprobs")
                           .at("content")
                           .as_array());
  }
}

TEST(ChatLogprobs, OfAnEmptyAnswerAreAnEmptyList) {
  EchoService service;
  const json::value body = json::parse(
      whole(chat_completion(service, say(R"("logprobs":true,"logit_bias":{"256":100})"))).body);
  EXPECT_EQ(body.at("choices").at(0).at("logprobs"),
            (json::value{{"content", json::array{}}, {"refusal", nullptr}}));
}

TEST(CompletionLogprobs, AreFourListsOfEqualLength) {
  EchoService service;
  const json::value body = json::parse(whole(completion(service, ask(R"("logprobs":2)"))).body);
  const double half = std::log(0.5f), quarter = -2 * std::log(2.0f);
  EXPECT_EQ(
      body.at("choices").at(0).at("logprobs"),
      (json::value{{"tokens", {"a", "b"}},
                   {"token_logprobs", {half, half}},
                   {"top_logprobs", {{{"a", half}, {"b", quarter}}, {{"b", half}, {"c", quarter}}}},
                   {"text_offset", {0, 1}}}));
}

TEST(CompletionLogprobs, AlwaysNameTheChosenToken) {
  EchoService service;
  const json::value body = json::parse(whole(completion(service, ask(R"("logprobs":0)"))).body);
  EXPECT_EQ(body.at("choices").at(0).at("logprobs").at("top_logprobs"),
            (json::value{{{"a", std::log(0.5f)}}, {{"b", std::log(0.5f)}}}));
}

TEST(CompletionLogprobs, OfAStreamContinueTheOffsets) {
  EchoService service;
  const std::string fields = R"("prompt":"hé🎉!","logprobs":1,"stop":"🎉?")";
  const json::value answer = json::parse(whole(completion(service, "{" + fields + "}")).body);
  const auto chunks = by_choice(streamed(completion(service, "{" + fields + R"(,"stream":true})")));
  json::array offsets, tokens;
  for (const json::object& chunk : chunks.at(0)) {
    if (chunk.at("logprobs").is_null()) continue;
    for (const json::value& offset : chunk.at("logprobs").at("text_offset").as_array()) {
      offsets.push_back(offset);
    }
    for (const json::value& token : chunk.at("logprobs").at("tokens").as_array()) {
      tokens.push_back(token);
    }
  }
  const json::value& logprobs = answer.at("choices").at(0).at("logprobs");
  EXPECT_EQ(offsets, logprobs.at("text_offset").as_array());
  EXPECT_EQ(tokens, logprobs.at("tokens").as_array());
  // A token inside a character begins behind the beginning of the character.
  EXPECT_EQ(offsets, (json::array{0, 1, 2, 2, 3, 3, 3, 3}));
}

/// Tokens of any text: id i stands for words[i]; "<...>" is special.
class Words : public EchoService {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {}
  serving::TokenText token_text(int32_t id) const override {
    const std::string& word = words_.at(static_cast<size_t>(id));
    return {.bytes = word, .text = word, .special = word.starts_with("<")};
  }
  /// The offset of one token, whose event brings `text`.
  size_t place(int32_t id, std::string text) {
    const engine::TokenEvent event{
        .text = std::move(text), .ids = {id}, .scores = {{.token = {.id = id}, .top = {}}}};
    return position_.place(event, *this).at(0).offset;
  }

 private:
  const std::vector<std::string> words_;
  TextPosition position_;
};

TEST(TextPosition, ForgetsASpaceThatTheTokenizerDrops) {
  Words words({" one", " two"});
  EXPECT_EQ(words.place(0, "one"), 0u);
  EXPECT_EQ(words.place(1, " two"), 3u);
  EXPECT_EQ(words.place(0, " one"), 7u);
}

TEST(TextPosition, CountsWhatAStopStringHoldsBack) {
  Words words({"aa", "ab", "c"});
  EXPECT_EQ(words.place(0, "a"), 0u);
  EXPECT_EQ(words.place(1, ""), 2u);
  EXPECT_EQ(words.place(2, "aabc"), 4u);
  EXPECT_EQ(words.place(2, "c"), 5u);
}

TEST(TextPosition, SkipsSpecialTokens) {
  Words words({"a", "<end>"});
  EXPECT_EQ(words.place(0, "a"), 0u);
  EXPECT_EQ(words.place(1, ""), 1u);
  EXPECT_EQ(words.place(0, "a"), 1u);
  EXPECT_EQ(words.place(0, "a"), 2u);
}

TEST(TextPosition, GoesOnBehindBytesThatAreNoCharacter) {
  Words words({"\xF0\x9F", "a"});
  EXPECT_EQ(words.place(0, ""), 0u);
  EXPECT_EQ(words.place(1, "\uFFFDa"), 1u);
  EXPECT_EQ(words.place(1, "a"), 2u);
}

TEST(TextPosition, TakesSeveralTokensOfOneEvent) {
  Words words({"ab", "é"});
  TextPosition position;
  const engine::TokenEvent event{.text = "abéab",
                                 .ids = {0, 1, 0},
                                 .scores = {{.token = {.id = 0}, .top = {}},
                                            {.token = {.id = 1}, .top = {}},
                                            {.token = {.id = 0}, .top = {}}}};
  std::vector<size_t> offsets;
  for (const PlacedScore& score : position.place(event, words)) offsets.push_back(score.offset);
  EXPECT_EQ(offsets, (std::vector<size_t>{0, 2, 3}));
}

}  // namespace
}  // namespace cohort::api
