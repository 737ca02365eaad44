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

TEST(Tokenizer, BytesOfATokenAreThoseItAddsToAText) {
  for (const char* name : {"llama", "gemma3", "qwen3", "qwen3_5", "gemma4_e2b"}) {
    const Tokenizer tokenizer = family(name);
    const std::string text = "a 😀 日本語 <|im_start|><bos> é\n";
    std::string bytes;
    for (const int32_t id : tokenizer.encode(text, SpecialTokens::kParse)) {
      bytes += tokenizer.bytes_of(id);
    }
    EXPECT_EQ(bytes, text) << name;
    for (const int32_t id : {-1, tokenizer.vocab_size(), std::numeric_limits<int32_t>::min()}) {
      EXPECT_EQ(tokenizer.bytes_of(id), "");
      EXPECT_FALSE(tokenizer.is_special(id));
    }
  }
  const Tokenizer qwen = family("qwen3");
  const int32_t start = qwen.token_to_id("<|im_start|>");
  EXPECT_EQ(qwen.bytes_of(start), "<|im_start|>");
  EXPECT_TRUE(qwen.is_special(start));
  EXPECT_FALSE(qwen.is_special(qwen.token_to_id("a")));
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

TEST(Tokenizer, OnlyTheGoldensOfGemmaPutTokensBeforeAText) {
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(COHORT_GOLDENS)) {
    if (entry.path().filename() != "tokenizer.json") continue;
    const Tokenizer tokenizer = Tokenizer::from_json(read_file(entry.path()));
    std::vector<int32_t> leading;
    if (entry.path().parent_path().filename().string().starts_with("gemma")) leading = {2};
    EXPECT_EQ(tokenizer.leading_ids(), leading) << entry.path();
    ++found;
  }
  EXPECT_GE(found, 11);
}

std::vector<int32_t> leading_with(const std::string& post_processor) {
  return Tokenizer::from_json(with("post_processor", post_processor)).leading_ids();
}

/// A post-processor that puts `single` in place of a text, where token "t" stands for `ids`.
std::string template_of(const std::string& single, const std::string& ids) {
  return R"({"type":"TemplateProcessing","pair":[{"Sequence":{"id":"A","type_id":0}}],"single":[)" +
         single + R"(],"special_tokens":{"t":{"id":"t","tokens":["t"],"ids":)" + ids + "}}}";
}

const std::string kText = R"({"Sequence":{"id":"A","type_id":0}})";
const std::string kToken = R"({"SpecialToken":{"id":"t","type_id":0}})";

TEST(Tokenizer, WhatPostProcessorsPutBeforeATextIsKnown) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(leading_with("null"), Ids{});
  EXPECT_EQ(leading_with(template_of(kText, "[317]")), Ids{});
  EXPECT_EQ(leading_with(template_of(kText + "," + kToken, "[317]")), Ids{});
  EXPECT_EQ(leading_with(template_of(kToken + "," + kText, "[316,5]")), (Ids{316, 5}));
  EXPECT_EQ(leading_with(template_of(kToken + "," + kText + "," + kToken, "[316]")), Ids{316});
  EXPECT_EQ(leading_with(R"({"type":"BertProcessing","sep":["s",317],"cls":["c",316]})"), Ids{316});
  EXPECT_EQ(leading_with(R"({"type":"RobertaProcessing","sep":["s",317],"cls":["c",316],
                             "trim_offsets":true,"add_prefix_space":true})"),
            Ids{316});
  const std::string bytes =
      R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
  EXPECT_EQ(leading_with(bytes), Ids{});
  EXPECT_EQ(leading_with(R"({"type":"Sequence","processors":[)" + bytes + "," +  // as Llama 3 does
                         template_of(kToken + "," + kText, "[316]") + "]}"),
            Ids{316});
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

TEST(HostileTokenizer, APostProcessorThatCannotBeRightIsAnError) {
  const std::string before = kToken + "," + kText;
  std::string many_ids = "[316", many_tokens = before, nested = template_of(before, "[316]");
  for (int i = 0; i < 20000; ++i) {
    many_ids += ",316";
    many_tokens += "," + kToken;
  }
  for (int i = 0; i < 1000; ++i) nested = R"({"type":"Sequence","processors":[)" + nested + "]}";
  const std::string step = template_of(before, "[316]");
  const std::pair<std::string, const char*> cases[] = {
      {template_of(before, "[322]"), "adds token 322, which is not in the vocabulary"},
      {template_of(kText + "," + kToken, "[322]"), "adds token 322, which is not in the"},
      {template_of(before, "[4294967295]"), "repeats a text 2 times, not once"},
      {template_of(before, "[4294967296]"), "cannot read tokenizer.json"},
      {template_of(before, "[-1]"), "cannot read tokenizer.json"},
      {template_of(kText + "," + kText, "[316]"), "repeats a text 2 times, not once"},
      {template_of(kToken, "[316]"), "repeats a text 0 times, not once"},
      {template_of("", "[316]"), "repeats a text 0 times, not once"},
      {template_of(R"({"Sequence":{"id":"B","type_id":0}})", "[316]"), "post-processor"},
      {template_of(R"({"SpecialToken":{"id":"none","type_id":0}})", "[316]"), "post-processor"},
      {template_of(before, many_ids + "]"), "adds 20001 tokens: at most 64 are supported"},
      {template_of(many_tokens, many_ids + "]"), "adds 400040001 tokens: at most 64"},
      {R"({"type":"Sequence","processors":[)" + step + "," + step + "," + step + "]}", "post-proc"},
      {R"({"type":"BertProcessing","sep":["s",317],"cls":["c",999999]})", "adds token 999999"},
      {nested, "cannot read tokenizer.json"},
  };
  for (const auto& [post_processor, message] : cases) {
    std::string file = with("post_processor", "null");
    const std::string null = R"("post_processor":null)";
    const size_t at = file.find(null);
    ASSERT_NE(at, std::string::npos);
    file.replace(at, null.size(), R"("post_processor":)" + post_processor);
    try {
      Tokenizer::from_json(file);
      ADD_FAILURE() << "loaded: " << post_processor.substr(0, 200);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
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
