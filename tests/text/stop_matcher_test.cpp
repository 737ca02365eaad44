#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"

namespace cohort::text {
namespace {

struct Outcome {
  std::string emitted;
  int stop_index = -1;
  bool operator==(const Outcome&) const = default;
};

/// Pushes `text` cut at `cuts`, a sorted list of positions.
Outcome run(const std::vector<std::string>& stops, const std::string& text,
            const std::vector<size_t>& cuts) {
  StopMatcher matcher(stops);
  Outcome outcome;
  size_t begin = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : text.size();
    outcome.emitted += matcher.push(std::string_view(text).substr(begin, end - begin));
    begin = end;
  }
  outcome.stop_index = matcher.stop_index();
  if (!matcher.stopped()) outcome.emitted += matcher.finish();
  return outcome;
}

/// What the contract says, the slow way.
Outcome reference(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      const size_t size = stops[i].size();
      if (size > end || text.compare(end - size, size, stops[i]) != 0) continue;
      if (best < 0 || size > stops[best].size()) best = static_cast<int>(i);
    }
    if (best >= 0) return {text.substr(0, end - stops[best].size()), best};
  }
  return {text, -1};
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopMatcher matcher({"</s>", "\n\nUser:"});
  EXPECT_EQ(matcher.push("Hello <"), "Hello ");
  EXPECT_EQ(matcher.push("/"), "");
  EXPECT_EQ(matcher.push("b>\n"), "</b>");
  EXPECT_EQ(matcher.push("\n"), "");
  EXPECT_EQ(matcher.push("\nUse"), "\n");
  EXPECT_EQ(matcher.push("r: more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.stop_index(), 1);
  EXPECT_EQ(matcher.push("never"), "");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, FinishGivesBackWhatWasHeld) {
  StopMatcher matcher({"STOP"});
  EXPECT_EQ(matcher.push("a STO"), "a ");
  EXPECT_EQ(matcher.finish(), "STO");
  EXPECT_EQ(matcher.push("P"), "P");  // a new text
}

TEST(StopMatcher, WithoutStopStringsTextPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("anything"), "anything");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, AnEmptyStopStringIsTheCallersFault) {
  try {
    StopMatcher({"a", ""});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
    EXPECT_EQ(error.param(), "stop");
  }
}

TEST(StopMatcher, TheLongestOfThoseThatEndTogetherWins) {
  EXPECT_EQ(run({"b", "ab", "cab"}, "xcab", {}), (Outcome{"x", 2}));
  EXPECT_EQ(run({"abc", "b"}, "abc", {}), (Outcome{"a", 1}));
  EXPECT_EQ(run({"same", "same"}, "same", {}), (Outcome{"", 0}));
}

TEST(StopMatcher, CutsNoCharacter) {
  StopMatcher matcher({"日本", "é!"});
  EXPECT_EQ(matcher.push("x日"), "x");
  EXPECT_EQ(matcher.push("曜é"), "日曜");
  EXPECT_EQ(matcher.push("é"), "é");
  EXPECT_EQ(matcher.push("日本語"), "é");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, EveryCutGivesTheSame) {
  const std::vector<std::string> stops = {"abab", "bb", "cabac"};
  for (const std::string text : {"xababy", "cabacabac", "abaabab", "aabacbcab", "cabbab"}) {
    const Outcome expected = reference(stops, text);
    for (size_t a = 0; a <= text.size(); ++a) {
      for (size_t b = a; b <= text.size(); ++b) {
        EXPECT_EQ(run(stops, text, {a, b}), expected) << text;
      }
    }
  }
}

TEST(StopMatcher, AgreesWithTheReferenceOnRandomTexts) {
  std::mt19937 random(7);
  const auto word = [&](size_t longest) {
    std::string text(random() % longest + 1, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(random() % 4 + 1);
    for (std::string& stop : stops) stop = word(7);
    const std::string text = word(40);
    std::vector<size_t> cuts(random() % 5);
    for (size_t& cut : cuts) cut = random() % (text.size() + 1);
    std::sort(cuts.begin(), cuts.end());
    EXPECT_EQ(run(stops, text, cuts), reference(stops, text)) << text;
  }
}

TEST(StopMatcher, SixteenStringsAndAMegabyteAreLinear) {
  std::vector<std::string> stops;
  for (int i = 0; i < 16; ++i) stops.push_back(std::string(1000 + i, 'a') + "b");
  const std::string text(1 << 20, 'a');
  StopMatcher matcher(stops);
  const auto begin = std::chrono::steady_clock::now();
  size_t emitted = 0;
  for (size_t at = 0; at < text.size(); at += 4) {
    emitted += matcher.push(std::string_view(text).substr(at, 4)).size();
  }
  EXPECT_EQ(emitted + matcher.finish().size(), text.size());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace cohort::text
