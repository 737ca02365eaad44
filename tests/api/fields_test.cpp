// What the two generating endpoints accept, and how they refuse the rest.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "api/json_input.h"
#include "api/openai.h"
#include "api/priority.h"
#include "base/error.h"

namespace cohort::api {
namespace {

namespace json = boost::json;

const serving::ModelInfo kModel{.ids = {"m"},
                                .created_unix_s = 0,
                                .context_tokens = 100,
                                .vocab_size = 300,
                                .has_chat_template = true,
                                .choices_max = 16};

Draft chat(const std::string& fields) {
  return read_chat(parse_object(R"({"messages":[{"role":"user","content":"hi"}])" +
                                (fields.empty() ? "" : "," + fields) + "}"),
                   kModel);
}

Draft completion_with(const std::string& fields) {
  return read_completion(parse_object("{" + fields + "}"), kModel);
}

template <class Read>
std::optional<Error> error_of(Read read) {
  try {
    read();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

struct Refused {
  std::string fields;
  std::string param;
};

void PrintTo(const Refused& refused, std::ostream* out) {
  *out << refused.fields.substr(0, 80);
}

class ChatRefuses : public ::testing::TestWithParam<Refused> {};

TEST_P(ChatRefuses, NamingTheField) {
  const auto error = error_of([&] { chat(GetParam().fields); });
  ASSERT_TRUE(error) << GetParam().fields.substr(0, 200);
  EXPECT_EQ(error->param(), GetParam().param);
  EXPECT_TRUE(error->kind() == ErrorKind::kInvalidRequest ||
              error->kind() == ErrorKind::kUnsupported);
  EXPECT_LT(std::string(error->what()).size(), 700u);
}

std::vector<Refused> wrong_numbers() {
  std::vector<Refused> cases;
  const auto add = [&](std::string name, std::initializer_list<std::string_view> values) {
    for (const auto value : values) {
      cases.push_back({fmt::format("\"{}\":{}", name, value), name});
    }
  };
  add("max_tokens", {"0", "-1", "1e308", "9223372036854775808", "18446744073709551616", "\"5\"",
                     "true", "5.0", "1e2", "[]", "{}"});
  add("max_completion_tokens", {"0", "-5", "2.5", "\"5\"", "false"});
  add("temperature", {"-0.1", "2.1", "1e308", "1e30", "-1e308", "\"1\"", "true", "[1]"});
  add("top_p", {"0", "-0.1", "1.01", "\"1\"", "1e-50"});
  add("min_p", {"-0.1", "1.01", "true"});
  add("top_k", {"-2", "0.5", "2147483648", "9223372036854775808", "\"40\""});
  add("repetition_penalty", {"0", "-1", "1e-50", "101", "1e39"});
  add("presence_penalty", {"-2.1", "2.1", "1e308", "\"0\""});
  add("frequency_penalty", {"-2.1", "2.1", "true"});
  add("seed", {"1.5", "18446744073709551616", "-9223372036854775809", "\"1\"", "true", "1e3"});
  add("n", {"0", "17", "-1", "1.0", "1e308", "9223372036854775808", "\"1\"", "true"});
  add("best_of", {"0", "2", "129", "9223372036854775807", "true"});
  add("top_logprobs", {"1", "20", "21", "-1", "0.5", "9223372036854775808", "\"0\"", "true"});
  add("logprobs", {"1", "0", "\"false\"", "[]"});
  add("stream", {"1", "\"true\"", "[]"});
  add("ignore_eos", {"1", "\"yes\""});
  add("priority", {"1.0", "\"High\"", "\"\"", "\"5\"", "true", "[]", "{}"});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Numbers, ChatRefuses, ::testing::ValuesIn(wrong_numbers()));

std::string many(std::string_view entry, size_t count) {
  std::string list;
  for (size_t i = 0; i < count; ++i) list += fmt::format("{}{}", i ? "," : "", entry);
  return list;
}

std::string biases(size_t count) {
  std::string list;
  for (size_t i = 0; i < count; ++i) list += fmt::format("{}\"{}\":1", i ? "," : "", i);
  return list;
}

INSTANTIATE_TEST_SUITE_P(
    Values, ChatRefuses,
    ::testing::Values(
        Refused{R"("stop":"")", "stop"}, Refused{R"("stop":["a",""])", "stop[1]"},
        Refused{R"("stop":["a",5])", "stop[1]"}, Refused{R"("stop":5)", "stop"},
        Refused{R"("stop":[null])", "stop[0]"},
        Refused{"\"stop\":[" + many("\"a\"", 100'000) + "]", "stop"},
        Refused{"\"stop\":[" + many("\"a\"", 17) + "]", "stop"},
        Refused{"\"stop\":\"" + std::string(1 << 20, 'x') + "\"", "stop"},
        Refused{"\"stop\":\"" + std::string(4097, 'x') + "\"", "stop"},
        Refused{R"("logit_bias":[])", "logit_bias"}, Refused{R"("logit_bias":1)", "logit_bias"},
        Refused{R"("logit_bias":{"300":1})", "logit_bias"},
        Refused{R"("logit_bias":{"-1":1})", "logit_bias"},
        Refused{R"("logit_bias":{"05":1})", "logit_bias"},
        Refused{R"("logit_bias":{"five":1})", "logit_bias"},
        Refused{R"("logit_bias":{"":1})", "logit_bias"},
        Refused{R"("logit_bias":{"99999999999999999999":1})", "logit_bias"},
        Refused{R"("logit_bias":{"5":101})", "logit_bias.5"},
        Refused{R"("logit_bias":{"5":1e999})", "logit_bias.5"},
        Refused{R"("logit_bias":{"5":"1"})", "logit_bias.5"},
        Refused{R"("logit_bias":{"5":null})", "logit_bias.5"},
        Refused{"\"logit_bias\":{" + biases(100'000) + "}", "logit_bias"},
        Refused{R"("stream_options":true)", "stream_options"},
        Refused{R"("stream_options":{"include_usage":1})", "stream_options.include_usage"},
        Refused{R"("stream_options":{"other":1})", "stream_options.other"},
        Refused{R"("stream_options":{"include_obfuscation":true})",
                "stream_options.include_obfuscation"},
        Refused{R"("max_tokens":5,"max_completion_tokens":6)", "max_completion_tokens"},
        Refused{R"("session_id":"a","prompt_cache_key":"b")", "prompt_cache_key"},
        Refused{R"("session_id":")" + std::string(513, 'a') + '"', "session_id"},
        Refused{R"("cache_salt":")" + std::string(513, 'a') + '"', "cache_salt"},
        Refused{R"("prompt_cache_key":"b","session_id":"a")", "prompt_cache_key"},
        Refused{R"("n":2,"best_of":3)", "best_of"}, Refused{R"("best_of":3,"n":2)", "best_of"},
        Refused{R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
        Refused{R"("logprobs":false,"top_logprobs":1)", "top_logprobs"},
        Refused{R"("top_logprobs":1,"logprobs":null)", "top_logprobs"},
        Refused{R"("model":5)", "model"},
        Refused{R"("chat_template_kwargs":[])", "chat_template_kwargs"},
        Refused{R"("store":true)", "store"}, Refused{R"("metadata":"x")", "metadata"},
        Refused{R"("user":5)", "user"}, Refused{R"("service_tier":"flex")", "service_tier"},
        Refused{R"("tools":[{"type":"function"}])", "tools"},
        Refused{R"("tool_choice":"required")", "tool_choice"},
        Refused{R"("tool_choice":{"type":"function"})", "tool_choice"},
        Refused{R"("response_format":{"type":"json_object"})", "response_format"},
        Refused{R"("response_format":{"type":"text","x":1})", "response_format"},
        Refused{R"("modalities":["text","audio"])", "modalities"},
        Refused{R"("reasoning_effort":"low")", "reasoning_effort"},
        Refused{R"("prediction":{"type":"content","content":""})", "prediction"},
        Refused{R"("num_predict":5)", "num_predict"}, Refused{R"("prompt":"x")", "prompt"},
        Refused{R"("n_keep":-1)", "n_keep"}, Refused{R"("Temperature":1)", "Temperature"},
        Refused{R"("":1)", ""}, Refused{R"("messages":[])", "messages"},
        Refused{R"("messages":"hi")", "messages"}));

std::string message(std::string_view text) {
  return fmt::format("\"messages\":[{}]", text);
}

INSTANTIATE_TEST_SUITE_P(
    Messages, ChatRefuses,
    ::testing::Values(
        Refused{message("5"), "messages[0]"}, Refused{message("null"), "messages[0]"},
        Refused{message("{}"), "messages[0].role"},
        Refused{message(R"({"role":"user"})"), "messages[0].content"},
        Refused{message(R"({"role":"user","content":null})"), "messages[0].content"},
        Refused{message(R"({"role":"user","content":5})"), "messages[0].content"},
        Refused{message(R"({"role":"user","content":[]})"), "messages[0].content"},
        Refused{message(R"({"role":"user","content":["a"]})"), "messages[0].content[0]"},
        Refused{message(R"({"role":"user","content":[{}]})"), "messages[0].content[0].type"},
        Refused{message(R"({"role":"user","content":[{"type":"text"}]})"),
                "messages[0].content[0].text"},
        Refused{message(R"({"role":"user","content":[{"type":"text","text":1}]})"),
                "messages[0].content[0].text"},
        Refused{message(R"({"role":"user","content":[{"type":"text","text":"a","b":1}]})"),
                "messages[0].content[0]"},
        Refused{message(R"({"role":"user","content":[{"type":"image_url","image_url":{}}]})"),
                "messages[0].content[0].type"},
        Refused{message(R"({"role":"robot","content":"a"})"), "messages[0].role"},
        Refused{message(R"({"role":"tool","content":"a","tool_call_id":"x"})"), "messages[0].role"},
        Refused{message(R"({"role":5,"content":"a"})"), "messages[0].role"},
        Refused{message(R"({"role":"user","content":"a","name":5})"), "messages[0].name"},
        Refused{message(R"({"role":"user","content":"a","extra":5})"), "messages[0].extra"},
        Refused{message(R"({"role":"assistant","content":"a","tool_calls":[{}]})"),
                "messages[0].tool_calls"},
        Refused{"\"messages\":[" + many(R"({"role":"user","content":""})", 70'000) + "]",
                "messages"}));

class ChatIgnores : public ::testing::TestWithParam<std::string> {};

TEST_P(ChatIgnores, WhatChangesNothing) {
  EXPECT_FALSE(error_of([&] { chat(GetParam()); })) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ChatIgnores,
    ::testing::Values(R"("user":"u")", R"("safety_identifier":"u")", R"("metadata":{"a":"b"})",
                      R"("store":false)", R"("service_tier":"auto")", R"("prompt_cache_key":"k")",
                      R"("n":1)", R"("logprobs":false)", R"("top_logprobs":0)",
                      R"("logprobs":false,"top_logprobs":0)", R"("best_of":1)",
                      R"("n":3,"best_of":3)", R"("n":3,"best_of":1)", R"("modalities":["text"])",
                      R"("response_format":{"type":"text"})", R"("reasoning_effort":"none")",
                      R"("tools":[])", R"("functions":[])", R"("tool_choice":"auto")",
                      R"("tool_choice":"none")", R"("function_call":"none")",
                      R"("parallel_tool_calls":true)", R"("stream_options":{})",
                      R"("stream_options":{"include_usage":null,"include_obfuscation":false})",
                      R"("anything":null)", R"("logit_bias":{})", R"("stop":[])",
                      R"("temperature":null)",
                      R"("mirostat":0,"mirostat_tau":5,"mirostat_eta":0.1,"id_slot":-1)",
                      R"("dry_multiplier":0,"dry_base":1.75,"dry_sequence_breakers":["\n"])",
                      R"("stop_token_ids":[],"detokenize":true,"grammar":"")",
                      R"("tools":null,"audio":null,"prediction":null,"web_search_options":null)",
                      R"("max_tokens":5,"max_completion_tokens":5)"));

TEST(ChatFields, AreReadExactly) {
  const Draft draft =
      chat(R"("model":"x","max_tokens":7,"temperature":2,"top_p":1,"top_k":40,"min_p":0.05,)"
           R"("repetition_penalty":1.1,"presence_penalty":-2,"frequency_penalty":2,"seed":5,)"
           R"("stop":["\n","END"],"logit_bias":{"0":-100,"299":100},"ignore_eos":true,)"
           R"("stream":true,"stream_options":{"include_usage":true},)"
           R"("chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_EQ(draft.model, "x");
  EXPECT_EQ(draft.request.max_tokens, 7);
  EXPECT_EQ(draft.request.sampling.temperature, 2.0f);
  EXPECT_EQ(draft.request.sampling.top_p, 1.0f);
  EXPECT_EQ(draft.request.sampling.top_k, 40);
  EXPECT_EQ(draft.request.sampling.min_p, 0.05f);
  EXPECT_EQ(draft.request.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(draft.request.sampling.presence_penalty, -2.0f);
  EXPECT_EQ(draft.request.sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(draft.request.sampling.seed, 5u);
  EXPECT_EQ(draft.request.stop, (std::vector<std::string>{"\n", "END"}));
  EXPECT_EQ(draft.request.sampling.logit_bias,
            (std::vector<std::pair<int32_t, float>>{{0, -100.0f}, {299, 100.0f}}));
  EXPECT_TRUE(draft.request.ignore_eos);
  EXPECT_TRUE(draft.stream);
  EXPECT_TRUE(draft.include_usage);
  EXPECT_EQ(draft.conversation->template_kwargs_json, R"({"enable_thinking":false})");
}

TEST(ChatFields, NotSaidStaysAbsent) {
  const Draft draft = chat("");
  EXPECT_FALSE(draft.model);
  EXPECT_FALSE(draft.request.max_tokens);
  EXPECT_FALSE(draft.request.sampling.temperature);
  EXPECT_FALSE(draft.request.sampling.seed);
  EXPECT_FALSE(draft.stream);
}

TEST(ChatFields, MaxCompletionTokensIsTheSameLimit) {
  EXPECT_EQ(chat(R"("max_completion_tokens":9)").request.max_tokens, 9);
}

TEST(ChatFields, EverySeedOf64BitsCounts) {
  EXPECT_EQ(chat(R"("seed":18446744073709551615)").request.sampling.seed, UINT64_MAX);
  EXPECT_EQ(chat(R"("seed":-2)").request.sampling.seed, UINT64_MAX - 1);
  EXPECT_EQ(chat(R"("seed":-9223372036854775808)").request.sampling.seed, uint64_t{1} << 63);
  EXPECT_EQ(chat(R"("seed":0)").request.sampling.seed, 0u);
}

TEST(ChatFields, WhatOtherServersTakeForOffIsOff) {
  EXPECT_EQ(chat(R"("seed":-1)").request.sampling.seed, std::nullopt);
  EXPECT_EQ(chat(R"("top_k":-1)").request.sampling.top_k, 0);
  EXPECT_EQ(chat(R"("min_p":1)").request.sampling.min_p, 1.0f);
}

TEST(ChatFields, ANameOfAnotherServerIsToldByTheOneHere) {
  const std::pair<std::string_view, std::string_view> names[] = {
      {R"("n_predict":5)", "here it is max_tokens"},
      {R"("repeat_penalty":1.1)", "here it is repetition_penalty"},
      {R"("prompt":"a")", "here it is messages"}};
  for (const auto& [field, told] : names) {
    const auto error = error_of([&] { chat(std::string(field)); });
    ASSERT_TRUE(error) << field;
    EXPECT_NE(std::string(error->what()).find(told), std::string::npos) << error->what();
  }
}

TEST(ChatFields, PriorityHasNamesAndNumbersOfWhichTheLowerGoesFirst) {
  using engine::Priority;
  const std::pair<const char*, Priority> cases[] = {{R"("high")", Priority::kHigh},
                                                    {R"("normal")", Priority::kNormal},
                                                    {R"("low")", Priority::kLow},
                                                    {"-1", Priority::kHigh},
                                                    {"0", Priority::kNormal},
                                                    {"1", Priority::kLow},
                                                    {"-9223372036854775808", Priority::kHigh},
                                                    {"18446744073709551615", Priority::kLow}};
  for (const auto& [value, priority] : cases) {
    EXPECT_EQ(chat(fmt::format("\"priority\":{}", value)).priority, priority) << value;
  }
  EXPECT_FALSE(chat("").priority);
  EXPECT_FALSE(chat(R"("priority":null)").priority);
  const auto error = error_of([] { chat(R"("priority":"urgent")"); });
  EXPECT_STREQ(error->what(),
               "priority must be 'high', 'normal', 'low' or an integer: below 0 is high, 0 normal, "
               "above 0 low");
}

TEST(ChatFields, PriorityInTheHeaderIsText) {
  using engine::Priority;
  EXPECT_EQ(read_priority_header({}), Priority::kNormal);
  EXPECT_EQ(read_priority_header("high"), Priority::kHigh);
  EXPECT_EQ(read_priority_header("low"), Priority::kLow);
  EXPECT_EQ(read_priority_header("-3"), Priority::kHigh);
  EXPECT_EQ(read_priority_header("0"), Priority::kNormal);
  EXPECT_EQ(read_priority_header("7"), Priority::kLow);
  for (const char* text : {"", "HIGH", "1.5", "+1", "1 ", "0x1", "99999999999999999999"}) {
    const auto error = error_of([&] { read_priority_header(text); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->param(), "X-Priority");
    EXPECT_EQ(error->kind(), ErrorKind::kInvalidRequest);
  }
}

TEST(ChatFields, SayHowManyChoicesThereAre) {
  EXPECT_EQ(chat("").request.choices, 1);
  EXPECT_EQ(chat(R"("n":16)").request.choices, 16);
  EXPECT_EQ(completion_with(R"("prompt":"a","n":2)").request.choices, 2);
  serving::ModelInfo large = kModel;
  large.choices_max = 4096;
  const auto ask = [&](int n) {
    return read_completion(json::object{{"prompt", "a"}, {"n", n}}, large).request.choices;
  };
  EXPECT_EQ(ask(128), 128);
  EXPECT_EQ(error_of([&] { ask(129); })->param(), "n");
}

TEST(ChatFields, SayHowManyLogprobsThereAre) {
  EXPECT_EQ(chat("").request.top_logprobs, std::nullopt);
  EXPECT_EQ(chat(R"("logprobs":false,"top_logprobs":0)").request.top_logprobs, std::nullopt);
  EXPECT_EQ(chat(R"("logprobs":true)").request.top_logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":20)").request.top_logprobs, 20);
  EXPECT_EQ(chat(R"("top_logprobs":3,"logprobs":true)").request.top_logprobs, 3);
}

TEST(ChatFields, MessagesKeepRolesNamesAndJoinedText) {
  const Draft draft = read_chat(parse_object(R"({"messages":[
      {"role":"developer","content":"d"},
      {"role":"user","name":"ann","content":[{"type":"text","text":"a"},
          {"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]},
      {"role":"assistant","content":"c","refusal":null,"annotations":[],"tool_calls":null}]})"),
                                kModel);
  const auto& messages = draft.conversation->messages;
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0].role, "developer");
  EXPECT_EQ(messages[1].name, "ann");
  EXPECT_EQ(messages[1].content, "a\nb");
  EXPECT_EQ(messages[2].content, "c");
}

TEST(ChatFields, TheMessageListIsRequired) {
  const auto error = error_of([] { read_chat(parse_object("{}"), kModel); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param(), "messages");
}

TEST(ChatFields, AHugeUnknownNameIsShortenedBetweenCharacters) {
  std::string name;
  for (int i = 0; i < 100'000; ++i) name += "é";
  const auto error = error_of([&] { chat("\"x" + name + "\":1"); });
  ASSERT_TRUE(error);
  EXPECT_LT(std::string(error->what()).size(), 700u);
  EXPECT_LE(error->param().size(), 64u);
  boost::json::error_code bad;
  boost::json::parse(boost::json::serialize(boost::json::object{{"p", error->param()}}), bad);
  EXPECT_FALSE(bad);
}

TEST(CompletionFields, TakeFourFormsOfOnePrompt) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(std::get<std::string>(completion_with(R"("prompt":"a")").prompt), "a");
  EXPECT_EQ(std::get<std::string>(completion_with(R"("prompt":["a"])").prompt), "a");
  EXPECT_EQ(std::get<Ids>(completion_with(R"("prompt":[0,299])").prompt), (Ids{0, 299}));
  EXPECT_EQ(std::get<Ids>(completion_with(R"("prompt":[[5]])").prompt), (Ids{5}));
}

TEST(CompletionFields, LogprobsAreACount) {
  EXPECT_EQ(completion_with(R"("prompt":"a")").request.top_logprobs, std::nullopt);
  EXPECT_EQ(completion_with(R"("prompt":"a","logprobs":0)").request.top_logprobs, 0);
  EXPECT_EQ(completion_with(R"("prompt":"a","logprobs":20)").request.top_logprobs, 20);
}

class PromptRefused : public ::testing::TestWithParam<Refused> {};

TEST_P(PromptRefused, NamingTheEntry) {
  const auto error = error_of([&] { completion_with(GetParam().fields); });
  ASSERT_TRUE(error) << GetParam().fields.substr(0, 200);
  EXPECT_EQ(error->param(), GetParam().param);
}

INSTANTIATE_TEST_SUITE_P(
    Prompts, PromptRefused,
    ::testing::Values(
        Refused{"", "prompt"}, Refused{R"("prompt":null)", "prompt"},
        Refused{R"("prompt":5)", "prompt"}, Refused{R"("prompt":{})", "prompt"},
        Refused{R"("prompt":[])", "prompt"}, Refused{R"("prompt":[[]])", "prompt"},
        Refused{R"("prompt":["a","b"])", "prompt"}, Refused{R"("prompt":[[1],[2]])", "prompt"},
        Refused{R"("prompt":[1,"a"])", "prompt"}, Refused{R"("prompt":[[1,"a"]])", "prompt"},
        Refused{R"("prompt":[[[1]]])", "prompt"}, Refused{R"("prompt":["a","b"])", "prompt"},
        Refused{R"("prompt":[-1])", "prompt[0]"}, Refused{R"("prompt":[1,300])", "prompt[1]"},
        Refused{R"("prompt":[1.5])", "prompt[0]"},
        Refused{R"("prompt":[9223372036854775808])", "prompt[0]"},
        Refused{R"("prompt":"a","messages":[])", "messages"},
        Refused{R"("prompt":"a","max_completion_tokens":5)", "max_completion_tokens"},
        Refused{R"("prompt":"a","echo":true)", "echo"},
        Refused{R"("prompt":"a","logprobs":21)", "logprobs"},
        Refused{R"("prompt":"a","logprobs":-1)", "logprobs"},
        Refused{R"("prompt":"a","logprobs":true)", "logprobs"},
        Refused{R"("prompt":"a","logprobs":1.5)", "logprobs"},
        Refused{R"("prompt":"a","logprobs":5,"top_logprobs":5)", "top_logprobs"},
        Refused{R"("prompt":"a","best_of":2)", "best_of"},
        Refused{R"("prompt":"a","suffix":"b")", "suffix"}));

TEST(Bodies, ThatAreNotJsonObjectsAreRefused) {
  const std::string deep(100'000, '[');
  const std::string deep_objects = many("{\"a\":", 1) + std::string(5000, ' ') + deep;
  const std::string cases[] = {"",
                               "null",
                               "[]",
                               "5",
                               "{",
                               "{\"a\":1,}",
                               "{'a':1}",
                               "{\"a\":NaN}",
                               "{\"a\":Infinity}",
                               "{\"a\":\"\xff\"}",
                               "{\"a\":\"\xc3\"}",
                               "{\"a\":\"\xed\xa0\x80\"}",
                               "{\"a\":\"\\ud800\"}",
                               std::string("{\"a\":1\0}", 8),
                               "{\"a\":1} trailing",
                               "\xef\xbb\xbf{}",
                               deep,
                               deep_objects,
                               "{\"a\":" + std::string(101, '[') + std::string(101, ']') + "}"};
  for (const std::string& body : cases) {
    const auto error = error_of([&] { parse_object(body); });
    ASSERT_TRUE(error) << body.substr(0, 60);
    EXPECT_EQ(error->kind(), ErrorKind::kInvalidRequest);
    EXPECT_EQ(error->code(), "invalid_json");
  }
}

TEST(Bodies, OfMillionsOfValuesAreRefusedBeforeTheyTakeMemory) {
  const auto error = error_of([&] { parse_object("{\"a\":[" + many("1", 5'000'000) + "]}"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), "too_many_values");
}

TEST(Bodies, OfTwoEqualKeysTheLastCounts) {
  EXPECT_EQ(chat(R"("seed":1,"seed":2)").request.sampling.seed, 2u);
}

TEST(Bodies, ANumberOfTenThousandDigitsIsRefusedByRange) {
  const auto error = error_of([] { chat("\"seed\":" + std::string(10'000, '9')); });
  ASSERT_TRUE(error);
}

TEST(Bodies, NulInATextIsKept) {
  const Draft draft = chat(R"("stop":"a\u0000b")");
  EXPECT_EQ(draft.request.stop.front(), std::string("a\0b", 3));
}

}  // namespace
}  // namespace cohort::api
