#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/printable.h"
#include "tests/support/refusal.h"

namespace cohort {
namespace {

std::string error_of(std::string_view text, JsonRules rules = {}) {
  return test::refusal([&] { parse_json(text, "file.json", rules); });
}

TEST(Json, ErrorsNameTheTextAndThePlace) {
  EXPECT_EQ(error_of("{\"a\": 1,}"), "file.json: invalid JSON at byte 8: syntax error");
  EXPECT_EQ(error_of("[1] 2"), "file.json: invalid JSON at byte 4: extra data");
  EXPECT_EQ(error_of("[1"), "file.json: invalid JSON at byte 2: incomplete JSON");
  EXPECT_NE(error_of("\"\xff\""), "");
  EXPECT_NE(error_of("\"\\udc00\""), "");
}

TEST(Json, DepthIsLimited) {
  EXPECT_EQ(error_of("[[[]]]", {.max_depth = 3}), "");
  EXPECT_EQ(error_of("[[[[]]]]", {.max_depth = 3}), "file.json: invalid JSON at byte 3: too deep");
  EXPECT_NE(error_of(std::string(100'000, '[')), "");
}

TEST(Json, EqualKeysAreRefusedWhereTheyMustBeUnique) {
  const JsonRules unique{.unique_keys = true};
  EXPECT_EQ(error_of(R"({"a":{"b":1},"b":{"a":1}})", unique), "");
  EXPECT_EQ(error_of(R"({"x":[{"a":1,"\u0061":2}]})", unique),
            "file.json: the key 'a' appears twice in one JSON object");
  const std::string long_key(5000, 'k');  // longer than the parser's buffer
  EXPECT_NE(error_of("{\"" + long_key + "\":1,\"" + long_key + "\":2}", unique), "");
  EXPECT_EQ(error_of("{\"" + long_key + "\":1,\"" + long_key + "l\":2}", unique), "");
  EXPECT_EQ(parse_json(R"({"a":1,"a":2})", "file.json").at("a").as_int64(), 2);
}

TEST(Json, AnObjectIsAskedForByName) {
  try {
    parse_json_object("[]", "config.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "config.json: a JSON object is needed, not array");
  }
}

TEST(Printable, ControlBytesAndLengthDoNotGetThrough) {
  EXPECT_EQ(printable("model.norm"), "'model.norm'");
  EXPECT_EQ(printable("\x1b[2J\n'\\\xff"), "'\\x1b[2J\\x0a\\x27\\x5c\\xff'");
  EXPECT_EQ(printable(std::string(97, 'x')), "'" + std::string(96, 'x') + "...'");
}

}  // namespace
}  // namespace cohort
