#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "tests/support/rounds.h"
#include "text/tokenizer.h"

namespace cohort::text {
namespace {

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

/// All bytes in GPT-2's alphabet, then "ab", "abc", a control and a user-defined token.
GgufVocabulary byte_level(const std::string& pre) {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = pre;
  int32_t next = 0x100;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int32_t code = printable ? byte : next++;
    std::string text;
    if (code < 0x80) {
      text = {static_cast<char>(code)};
    } else {
      text = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }
    vocabulary.tokens.push_back(text);
    vocabulary.token_types.push_back(kNormal);
  }
  for (const char* token : {"ab", "abc"}) {
    vocabulary.tokens.push_back(token);
    vocabulary.token_types.push_back(kNormal);
  }
  vocabulary.merges = {"a b", "ab c"};
  vocabulary.tokens.push_back("<|end|>");
  vocabulary.token_types.push_back(kControl);
  vocabulary.tokens.push_back("<think>");
  vocabulary.token_types.push_back(kUserDefined);
  return vocabulary;
}

TEST(GgufVocabulary, ByteLevelPairsMergeInOrder) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(byte_level("gpt-2"));
  EXPECT_EQ(tokenizer.vocab_size(), 260);
  EXPECT_EQ(tokenizer.encode("abcab", SpecialTokens::kParse), (std::vector<int32_t>{257, 256}));
  EXPECT_EQ(tokenizer.encode("abc<|end|>", SpecialTokens::kParse),
            (std::vector<int32_t>{257, 258}));
  EXPECT_EQ(tokenizer.encode("<|end|>", SpecialTokens::kAsText).size(), 7u);
  // User-defined tokens are parsed either way, and are text when decoded.
  EXPECT_EQ(tokenizer.encode("<think>", SpecialTokens::kAsText), std::vector<int32_t>{259});
  EXPECT_EQ(tokenizer.decode({259, 258}, SpecialTokens::kParse), "<think>");
}

TEST(GgufVocabulary, EveryByteSurvives) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(byte_level("llama-bpe"));
  std::string text;
  for (int code = 0; code < 0x800; ++code) {
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }
  }
  const auto ids = tokenizer.encode(text, SpecialTokens::kAsText);
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kParse), text);
}

TEST(GgufVocabulary, EveryKnownPreTokenizerBuilds) {
  std::string known;
  try {
    Tokenizer::from_gguf(byte_level("no-such-pre"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    known = error.what();
  }
  EXPECT_NE(known.find("'no-such-pre'"), std::string::npos);
  known = known.substr(known.find("known are ") + 10);
  int count = 0;
  for (size_t at = 0; at < known.size(); ++count) {
    const size_t end = std::min(known.find(", ", at), known.size());
    const std::string pre = known.substr(at, end - at);
    const Tokenizer tokenizer = Tokenizer::from_gguf(byte_level(pre));
    const std::string text = "It's 12345 ÄÖ 日本語\r\n  x\t(y)!? abc";
    const auto ids = tokenizer.encode(text, SpecialTokens::kAsText);
    EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kParse), text) << pre;
    at = end + 2;
  }
  EXPECT_GE(count, 20);
  for (const char* pre : {"smollm", "gpt-2", "default", "llama-bpe", "llama3", "qwen2", "tekken",
                          "deepseek-llm", "starcoder", "refact", "command-r"}) {
    EXPECT_NO_THROW(Tokenizer::from_gguf(byte_level(pre))) << pre;
  }
}

GgufVocabulary sentence_piece(bool space_prefix) {
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.add_space_prefix = space_prefix;
  const auto add = [&](const std::string& token, float score, int32_t type) {
    vocabulary.tokens.push_back(token);
    vocabulary.scores.push_back(score);
    vocabulary.token_types.push_back(type);
  };
  add("<unk>", 0, kUnknown);
  add("<s>", 0, kControl);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    add(name, 0, kByte);
  }
  add("▁", -9, kNormal);  // 258
  add("a", -9, kNormal);
  add("b", -9, kNormal);
  add("ab", -2, kNormal);   // 261
  add("▁a", -1, kNormal);   // 262: better than "ab"
  add("▁ab", -3, kNormal);  // 263
  vocabulary.unknown_id = 0;
  return vocabulary;
}

TEST(GgufVocabulary, SentencePieceJoinsTheBestScoreFirst) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(sentence_piece(false));
  EXPECT_EQ(tokenizer.encode("ab ab", SpecialTokens::kParse), (std::vector<int32_t>{261, 263}));
  EXPECT_EQ(tokenizer.encode(" a", SpecialTokens::kParse), std::vector<int32_t>{262});
  EXPECT_EQ(tokenizer.encode("é\n", SpecialTokens::kParse),
            (std::vector<int32_t>{2 + 0xC3, 2 + 0xA9, 2 + 0x0A}));
  EXPECT_EQ(tokenizer.decode({2 + 0xC3, 2 + 0xA9, 263}, SpecialTokens::kParse), "é ab");
  EXPECT_EQ(tokenizer.encode("<s>", SpecialTokens::kParse), std::vector<int32_t>{1});
}

TEST(GgufVocabulary, TheSpaceBeforeATextIsAddedAndDroppedAgain) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(sentence_piece(true));
  EXPECT_EQ(tokenizer.encode("ab", SpecialTokens::kParse), std::vector<int32_t>{263});
  EXPECT_EQ(tokenizer.decode({263, 263}, SpecialTokens::kParse), "ab ab");
  EXPECT_EQ(tokenizer.decode({1, 258, 258, 259}, SpecialTokens::kParse), " a");
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(263), "ab");
  EXPECT_EQ(detokenizer.push(263), " ab");
}

/// Letters, an unknown token, perhaps the bytes, and sums of random tokens as merges: of a sum
/// there may be several, of a pair too.
GgufVocabulary random_merges(std::mt19937& random) {
  GgufVocabulary vocabulary;
  vocabulary.model = "gemma4";
  vocabulary.tokens = {"a", "b", "▁", "é", "日"};
  const size_t num_letters = vocabulary.tokens.size();
  while (vocabulary.merges.size() < 60) {
    const auto draw = [&] { return vocabulary.tokens[random() % vocabulary.tokens.size()]; };
    const std::string left = draw(), right = draw(), sum = left + right;
    if (sum.size() > 24) continue;
    if (std::count(vocabulary.tokens.begin(), vocabulary.tokens.end(), sum) == 0) {
      vocabulary.tokens.push_back(sum);
    }
    vocabulary.merges.push_back(left + " " + right);
  }
  std::shuffle(vocabulary.tokens.begin() + num_letters, vocabulary.tokens.end(), random);
  std::shuffle(vocabulary.merges.begin(), vocabulary.merges.end(), random);
  const bool with_bytes = random() % 2 == 0;
  for (int byte = 0; with_bytes && byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    vocabulary.tokens.push_back(name);
  }
  vocabulary.unknown_id = static_cast<int32_t>(vocabulary.tokens.size());
  vocabulary.tokens.push_back("<unk>");
  return vocabulary;
}

/// The same as a tokenizer.json, whose model the crate runs.
std::string as_json(const GgufVocabulary& vocabulary) {
  boost::json::object file = boost::json::parse(R"({
    "added_tokens": [],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "decoder": {"type": "ByteFallback"},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true}
  })")
                                 .as_object();
  boost::json::object ids;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) ids[vocabulary.tokens[id]] = id;
  boost::json::object& model = file["model"].as_object();
  model["vocab"] = std::move(ids);
  model["merges"] = boost::json::value_from(vocabulary.merges);
  return boost::json::serialize(file);
}

TEST(GgufVocabulary, MergesGiveTheIdsOfTheSameTokenizerJson) {
  for (uint32_t seed = 0; seed < 20 * test::rounds(); ++seed) {
    std::mt19937 random(seed);
    const GgufVocabulary vocabulary = random_merges(random);
    const Tokenizer tokenizer = Tokenizer::from_gguf(vocabulary);
    const Tokenizer json = Tokenizer::from_json(as_json(vocabulary));
    for (int i = 0; i < 100; ++i) {
      std::string text;
      for (size_t left = random() % 40; left > 0; --left) {
        const char* const characters[] = {"a", "a", "b", "b", " ", "é", "日", "x", "ü"};
        text += characters[random() % std::size(characters)];
      }
      ASSERT_EQ(tokenizer.encode(text, SpecialTokens::kAsText),
                json.encode(text, SpecialTokens::kAsText))
          << "seed " << seed << ": " << text;
    }
  }
}

TEST(GgufVocabulary, ArraysThatDoNotFitAreErrors) {
  const auto refused = [](GgufVocabulary vocabulary) {
    try {
      Tokenizer::from_gguf(vocabulary);
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kInvalidRequest || error.kind() == ErrorKind::kUnsupported;
    }
  };
  EXPECT_TRUE(refused({}));
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  EXPECT_TRUE(refused(vocabulary));
  vocabulary = byte_level("gpt-2");
  vocabulary.token_types.pop_back();
  EXPECT_TRUE(refused(vocabulary));
  vocabulary = byte_level("gpt-2");
  vocabulary.merges = {"a zzz"};
  EXPECT_TRUE(refused(vocabulary));
  vocabulary.merges = {"nospace"};
  EXPECT_TRUE(refused(vocabulary));
  vocabulary.merges = {""};
  EXPECT_TRUE(refused(vocabulary));
  vocabulary = byte_level("gpt-2");
  vocabulary.tokens[3] = "\xFF";
  EXPECT_TRUE(refused(vocabulary));
  vocabulary = sentence_piece(false);
  vocabulary.scores.clear();
  EXPECT_TRUE(refused(vocabulary));
  vocabulary = sentence_piece(false);
  vocabulary.model = "bert";
  EXPECT_TRUE(refused(vocabulary));
  vocabulary = sentence_piece(false);
  vocabulary.unknown_id = 1 << 30;
  EXPECT_NO_THROW(Tokenizer::from_gguf(vocabulary));
}

}  // namespace
}  // namespace cohort::text
