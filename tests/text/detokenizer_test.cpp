#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "tests/text/golden_files.h"
#include "text/tokenizer.h"
#include "text/utf8_assembler.h"

namespace cohort::text {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.push(id);
    // Whole characters only: the piece alone is valid UTF-8.
    Utf8Assembler check;
    std::string whole;
    check.push(piece, whole);
    check.finish(whole);
    EXPECT_EQ(whole, piece);
    text += piece;
  }
  return text + detokenizer.finish();
}

/// Calls `visit` with every way to write `text` in tokens of the vocabulary.
void for_each_tokenization(const Tokenizer& tokenizer, const std::string& text,
                           const std::function<void(const std::vector<int32_t>&)>& visit) {
  std::vector<std::string> pieces;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    pieces.push_back(tokenizer.decode({id}, SpecialTokens::kParse));
  }
  // Pieces that are no whole character decode to U+FFFD; bytes come from encoding them instead.
  std::vector<int32_t> ids;
  const std::function<void(size_t)> extend = [&](size_t at) {
    if (at == text.size()) return visit(ids);
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const std::string& piece = pieces[id];
      if (piece.empty() || piece == kReplacement || text.compare(at, piece.size(), piece) != 0) {
        continue;
      }
      ids.push_back(id);
      extend(at + piece.size());
      ids.pop_back();
    }
  };
  extend(0);
}

TEST(Detokenizer, EveryTokenizationOfATextStreamsAsTheText) {
  for (const char* name : {"llama", "gemma3"}) {
    const Tokenizer tokenizer = Tokenizer::from_json(read_file(golden(name) / "tokenizer.json"));
    int count = 0;
    for_each_tokenization(tokenizer, "return there", [&](const std::vector<int32_t>& ids) {
      ++count;
      EXPECT_EQ(stream(tokenizer, ids), "return there");
    });
    EXPECT_GT(count, 10) << name;
  }
}

TEST(Detokenizer, EveryCutOfATokenStreamDecodesTheSame) {
  for (const char* name : {"llama", "gemma3", "qwen3"}) {
    const Tokenizer tokenizer = Tokenizer::from_json(read_file(golden(name) / "tokenizer.json"));
    const auto ids = tokenizer.encode("é😀👩‍💻 日本語 x", SpecialTokens::kAsText);
    for (size_t begin = 0; begin <= ids.size(); ++begin) {
      for (size_t end = begin; end <= ids.size(); ++end) {
        const std::vector<int32_t> part(ids.begin() + begin, ids.begin() + end);
        EXPECT_EQ(stream(tokenizer, part), tokenizer.decode(part, SpecialTokens::kParse));
      }
    }
  }
}

TEST(Detokenizer, HoldsBytesOfACharacterUntilItIsWhole) {
  const Tokenizer gemma = Tokenizer::from_json(read_file(golden("gemma3") / "tokenizer.json"));
  const auto byte = [&](const char* name) { return gemma.token_to_id(name); };
  ASSERT_GE(byte("<0xF0>"), 0);
  Detokenizer detokenizer(gemma);
  EXPECT_EQ(detokenizer.push(byte("<0xF0>")), "");
  EXPECT_EQ(detokenizer.push(byte("<0x9F>")), "");
  EXPECT_EQ(detokenizer.push(gemma.token_to_id("<eos>")), "");  // special: nothing
  EXPECT_EQ(detokenizer.push(byte("<0x98>")), "");
  EXPECT_EQ(detokenizer.push(byte("<0x80>")), "😀");
  EXPECT_EQ(detokenizer.push(byte("<0xE6>")), "");
  EXPECT_EQ(detokenizer.finish(), kReplacement);
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(detokenizer.push(byte("<0xE6>")), "");
  EXPECT_EQ(detokenizer.push(byte("<0x41>")), std::string(kReplacement) + "A");
}

TEST(Detokenizer, AnAnswerOfBrokenBytesStaysLinear) {
  const Tokenizer gemma = Tokenizer::from_json(read_file(golden("gemma3") / "tokenizer.json"));
  const int32_t lone = gemma.token_to_id("<0xE6>");
  Detokenizer detokenizer(gemma);
  const auto begin = std::chrono::steady_clock::now();
  size_t size = 0;
  for (int i = 0; i < 1'000'000; ++i) size += detokenizer.push(lone).size();
  EXPECT_EQ(size, 3u * 999'999);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Utf8Assembler, ReplacesEachLongestBeginningOnce) {
  // Examples of the Unicode standard, table 3-8 and its neighbours.
  const std::pair<std::string, std::string> cases[] = {
      {"\xC0\xAF", "RR"},
      {"\xED\xA0\x80", "RRR"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "RRRRRARRB"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "RRRRA"},
      {"\xF0\x90\x80", "R"},
      {"a\xE6\x97\xA5z", "a日z"},
  };
  for (const auto& [bytes, pattern] : cases) {
    std::string expected;
    for (const char c : pattern) expected += c == 'R' ? std::string(kReplacement) : std::string{c};
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      Utf8Assembler assembler;
      std::string text;
      assembler.push(std::string_view(bytes).substr(0, cut), text);
      assembler.push(std::string_view(bytes).substr(cut), text);
      assembler.finish(text);
      EXPECT_EQ(text, expected);
    }
  }
}

}  // namespace
}  // namespace cohort::text
