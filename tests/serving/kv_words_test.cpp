// The words and files with which people choose how keys and values are stored.

#include <gtest/gtest.h>

#include "base/error.h"
#include "kv/scheme.h"

namespace cohort::serving {
namespace {

using Kind = kv::KvScheme::Kind;

/// What reading throws; "" if nothing.
template <class F>
std::string refusal(const F& read, const char* param) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
    EXPECT_EQ(error.param(), param);
    const std::string text = error.what();
    for (const char c : text) EXPECT_TRUE(c >= ' ' && c != '\x7f') << text;
    EXPECT_LT(text.size(), 400U);
    return text;
  }
  return "";
}

kv::KvScheme scheme_of(std::string_view words) {
  kv::KvScheme scheme{.group = 32, .start = 7};
  kv::set_quantization(scheme, words);
  EXPECT_EQ(scheme.group, 32);
  EXPECT_EQ(scheme.start, 7);
  return scheme;
}

TEST(KvWords, AreRead) {
  EXPECT_EQ(scheme_of("off").kind, Kind::kOff);
  EXPECT_EQ(scheme_of("config").kind, Kind::kConfig);
  for (const int bits : {4, 8}) {
    EXPECT_EQ(scheme_of(std::to_string(bits)).kind, Kind::kUniform);
    EXPECT_EQ(scheme_of(std::to_string(bits)).bits, bits);
  }
  EXPECT_EQ(scheme_of("turbo").kind, Kind::kTurbo);
  EXPECT_EQ(scheme_of("turbo").key_bits, 8);
  EXPECT_EQ(scheme_of("turbo").value_bits, 3);
  for (const char k : {'2', '4', '5', '8'}) {
    for (const char v : {'2', '3', '4', '5', '8'}) {
      const kv::KvScheme scheme = scheme_of(std::string("turbo:k") + k + 'v' + v);
      EXPECT_EQ(scheme.kind, Kind::kTurbo);
      EXPECT_EQ(scheme.key_bits, k - '0');
      EXPECT_EQ(scheme.value_bits, v - '0');
    }
  }
}

TEST(KvWords, ThatDoNotExistAreRefusedWithThoseThatDo) {
  for (const std::string& words :
       {std::string(), std::string("OFF"), std::string("8 "), std::string("16"), std::string("-4"),
        std::string("turbo:"), std::string("turbo:k8"), std::string("turbo:k3v3"),
        std::string("turbo:k8v6"), std::string("turbo:k8v33"), std::string("turbo:v8k8"),
        std::string("Turbo:k8v3"), std::string("turbo:k\0v3", 10), std::string("8\0", 2),
        std::string("\x1b[2J\n"), std::string("\xff\xfe"), std::string(100'000, '8')}) {
    const std::string text = refusal([&] { scheme_of(words); }, "kv_quant");
    EXPECT_NE(text.find("off, 4, 8, config, turbo and turbo:kXvY"), std::string::npos) << text;
  }
}

TEST(KvConfig, IsRead) {
  EXPECT_TRUE(kv::read_kv_config("[]", "f").empty());
  const auto layers = kv::read_kv_config(
      R"([{"layer_idx": 3, "bits": 8, "group_size": 64}, {"bits": 4, "group_size": 32,
          "layer_idx": 0}])",
      "f");
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].layer, 3);
  EXPECT_EQ(layers[0].bits, 8);
  EXPECT_EQ(layers[0].group, 64);
  EXPECT_EQ(layers[1].layer, 0);
}

TEST(KvConfig, ThatIsNoneIsRefusedWithTheFileAndTheEntry) {
  const std::string one = R"({"layer_idx": 0, "bits": 8, "group_size": 64})";
  const std::pair<std::string, std::string> wrong[] = {
      {"", "f"},
      {"[", "f"},
      {std::string(100'000, '['), "f"},
      {"[\x1b]", "f"},
      {"null", "f: must be an array"},
      {one, "f: must be an array"},
      {"[1]", "f: entry 0 must have a whole number \"layer_idx\""},
      {"[" + one + ", {}]", "f: entry 1 must have a whole number \"layer_idx\""},
      {R"([{"layer_idx": 0, "group_size": 64}])", "f: entry 0 must have a whole number \"bits\""},
      {R"([{"layer_idx": 0, "bits": "8", "group_size": 64}])", "a whole number \"bits\""},
      {R"([{"layer_idx": 0, "bits": 8.0, "group_size": 64}])", "a whole number \"bits\""},
      {R"([{"layer_idx": -1, "bits": 8, "group_size": 64}])", "a whole number \"layer_idx\""},
      {R"([{"layer_idx": 4294967296, "bits": 8, "group_size": 64}])", "whole number \"layer_idx\""},
      {R"([{"layer_idx": 0, "bits": 8, "group_size": 18446744073709551615}])", "\"group_size\""},
      {R"([{"layer_idx": 0, "bits": 8, "group_size": 64, "\u001b": 1}])", "f: entry 0 has keys"},
      {"[" + one + "," + one + "]", "f: layer 0 is named twice"},
  };
  for (const auto& [text, reason] : wrong) {
    const std::string said = refusal([&] { kv::read_kv_config(text, "f"); }, "");
    EXPECT_NE(said.find(reason), std::string::npos) << text.substr(0, 80) << " gave " << said;
    EXPECT_FALSE(said.empty()) << text.substr(0, 80);
  }
}

}  // namespace
}  // namespace cohort::serving
