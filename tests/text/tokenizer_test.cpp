#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "tests/text/golden_files.h"

namespace cohort::text {
namespace {

Tokenizer family(const std::string& name) {
  return Tokenizer::from_json(read_file(golden(name) / "tokenizer.json"));
}

ErrorKind kind_of_failure(const std::string& json) {
  try {
    Tokenizer::from_json(json);
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "");
    return error.kind();
  }
  ADD_FAILURE() << "loaded: " << json.substr(0, 200);
  return ErrorKind::kInternal;
}

/// A tokenizer.json with one part replaced.
std::string with(const std::string& key, const std::string& value) {
  boost::json::object file = read_json(golden("llama") / "tokenizer.json").as_object();
  file[key] = boost::json::parse(value);
  return boost::json::serialize(file);
}

const char* const kSamples[] = {
    "",
    " ",
    "plain text",
    "  two  spaces\n\n\ttab ",
    "日本語 中文 한국어",
    "emoji 😀👩‍💻🇩🇪 end",
    "é combining e\u0301",
    "<|im_start|>user<start_of_turn><bos>",
    "Zürich — naïve “quotes” …",
};

TEST(Tokenizer, TextSurvivesEncodingAndDecoding) {
  for (const char* name : {"llama", "gemma3", "qwen3", "qwen3_5", "gemma4_e2b"}) {
    const Tokenizer tokenizer = family(name);
    for (const char* text : kSamples) {
      if (std::string(text) == "é combining e\u0301") continue;  // NFC joins it
      const auto ids = tokenizer.encode(text, SpecialTokens::kAsText);
      EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kParse), text) << name;
      for (const int32_t id : ids) EXPECT_LT(id, tokenizer.vocab_size());
    }
  }
}

TEST(Tokenizer, SpecialTokensAreParsedOrStayText) {
  const Tokenizer tokenizer = family("qwen3");
  const int32_t start = tokenizer.token_to_id("<|im_start|>");
  ASSERT_GE(start, 0);
  EXPECT_EQ(tokenizer.encode("<|im_start|>", SpecialTokens::kParse), std::vector<int32_t>{start});
  const auto as_text = tokenizer.encode("<|im_start|>", SpecialTokens::kAsText);
  EXPECT_GT(as_text.size(), 1u);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), start), 0);
  EXPECT_EQ(tokenizer.decode({start}, SpecialTokens::kParse), "");
  EXPECT_EQ(tokenizer.decode({start}, SpecialTokens::kAsText), "<|im_start|>");
  EXPECT_EQ(tokenizer.token_to_id("no such token"), -1);
}

TEST(Tokenizer, IdsOutsideTheVocabularyDecodeToNothing) {
  const Tokenizer tokenizer = family("llama");
  const std::vector<int32_t> ids = {-1, tokenizer.vocab_size(), std::numeric_limits<int32_t>::max(),
                                    std::numeric_limits<int32_t>::min()};
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kAsText), "");
  Detokenizer stream(tokenizer);
  for (const int32_t id : ids) EXPECT_EQ(stream.push(id), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Tokenizer, TextThatIsNotUtf8IsTheCallersFault) {
  const Tokenizer tokenizer = family("llama");
  try {
    tokenizer.encode("ab\xFF", SpecialTokens::kParse);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
  }
}

TEST(Tokenizer, TruncationAndPaddingOfTheFileAreIgnored) {
  const Tokenizer plain = family("llama");
  const Tokenizer cut = Tokenizer::from_json(
      with("truncation",
           R"({"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0})"));
  const Tokenizer padded = Tokenizer::from_json(
      with("padding", R"({"strategy":{"Fixed":64},"direction":"Right","pad_to_multiple_of":null,
                          "pad_id":0,"pad_type_id":0,"pad_token":"x"})"));
  const auto ids = plain.encode("quite a few tokens", SpecialTokens::kParse);
  EXPECT_EQ(cut.encode("quite a few tokens", SpecialTokens::kParse), ids);
  EXPECT_EQ(padded.encode("quite a few tokens", SpecialTokens::kParse), ids);
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const Tokenizer tokenizer = family("gemma3");
  const auto expected = tokenizer.encode("shared text 42", SpecialTokens::kParse);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        EXPECT_EQ(tokenizer.encode("shared text 42", SpecialTokens::kParse), expected);
        EXPECT_EQ(tokenizer.decode(expected, SpecialTokens::kParse), "shared text 42");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HostileTokenizer, GarbageIsAnError) {
  const std::string whole = read_file(golden("llama") / "tokenizer.json");
  for (const std::string& json :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"), std::string("{}"),
        std::string("\xFF\xFE\x00", 3), std::string(1 << 16, '\0'), whole.substr(0, 5000),
        std::string(100000, '['), std::string(100000, '{')}) {
    EXPECT_EQ(kind_of_failure(json), ErrorKind::kInvalidRequest);
  }
}

TEST(HostileTokenizer, EveryTruncationIsAnError) {
  const std::string whole = read_file(golden("llama") / "tokenizer.json");
  for (size_t size = 0; size + 3 < whole.size(); size += 97) {
    EXPECT_EQ(kind_of_failure(whole.substr(0, size)), ErrorKind::kInvalidRequest);
  }
}

TEST(HostileTokenizer, DeepNestingIsAnError) {
  std::string normalizer = R"({"type":"NFC"})";
  for (int i = 0; i < 5000; ++i) {
    normalizer = R"({"type":"Sequence","normalizers":[)" + normalizer + "]}";
  }
  std::string file = read_file(golden("llama") / "tokenizer.json");
  const size_t at = file.find(R"("normalizer": {)");
  ASSERT_NE(at, std::string::npos);
  file.insert(at, R"("normalizer": )" + normalizer + ",");
  EXPECT_EQ(kind_of_failure(file), ErrorKind::kInvalidRequest);
}

TEST(HostileTokenizer, IdsBeyondAnyVocabularyAreAnError) {
  for (const char* id : {"4294967295", "4194304", "-1", "1e99", "\"7\""}) {
    const std::string model =
        std::string(R"({"type":"BPE","vocab":{"a":)") + id + R"(},"merges":[]})";
    std::string file = with("model", R"({"type":"BPE","vocab":{},"merges":[]})");
    const std::string empty = R"("model":{"type":"BPE","vocab":{},"merges":[]})";
    const size_t at = file.find(empty);
    ASSERT_NE(at, std::string::npos);
    file.replace(at, empty.size(), "\"model\":" + model);
    EXPECT_EQ(kind_of_failure(file), ErrorKind::kInvalidRequest) << id;
  }
}

TEST(HostileTokenizer, PartsThatDoNotFitAreErrors) {
  for (const char* model : {
           R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})",
           R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]})",
           R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["ab"]})",
           R"({"type":"BPE","vocab":[],"merges":{}})",
           R"({"type":"Unigram","unk_id":9,"vocab":[["a",0.0]],"byte_fallback":false})",
           R"({"type":"Nonsense"})",
       }) {
    EXPECT_EQ(kind_of_failure(with("model", model)), ErrorKind::kInvalidRequest) << model;
  }
  const std::string nested = "\"" + std::string(2000, '(') + "\"";
  for (const std::string& pattern : {nested, std::string(R"("[")"), std::string(R"("(?<")")}) {
    EXPECT_EQ(kind_of_failure(with("pre_tokenizer",
                                   R"({"type":"Split","behavior":"Isolated","invert":false,
                                       "pattern":{"Regex":)" +
                                       pattern + "}}")),
              ErrorKind::kInvalidRequest);
  }
}

TEST(HostileTokenizer, WhatDecodesWithContextOrAtRandomIsRefused) {
  EXPECT_EQ(
      kind_of_failure(with("decoder", R"({"type":"WordPiece","prefix":"##","cleanup":true})")),
      ErrorKind::kUnsupported);
  EXPECT_EQ(kind_of_failure(with("decoder", "null")), ErrorKind::kUnsupported);
  EXPECT_EQ(
      kind_of_failure(with("model", R"({"type":"BPE","dropout":0.5,"vocab":{"a":0},"merges":[]})")),
      ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace cohort::text
