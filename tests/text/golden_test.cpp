// What transformers computed for each golden checkpoint: ids, decoded text, rendered chats.

#include <gtest/gtest.h>

#include <boost/json/src.hpp>  // the library itself, in this one file of the runner

#include "tests/text/golden_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace cohort::text {
namespace {

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(COHORT_GOLDENS)) {
    if (std::filesystem::exists(entry.path() / "golden_tokenizer.json")) {
      names.push_back(entry.path().filename());
    }
  }
  return names;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  Tokenizer tokenizer_ = Tokenizer::from_json(read_file(golden(GetParam()) / "tokenizer.json"));
  boost::json::value expected_ = read_json(golden(GetParam()) / "golden_tokenizer.json");
};

TEST_P(Golden, EncodesAndDecodesAsTransformers) {
  for (const auto& item : expected_.at("encode").as_array()) {
    const std::string text = text_of(item, "text");
    const std::vector<int32_t> ids = ids_of(item.at("ids"));
    EXPECT_EQ(tokenizer_.encode(text, SpecialTokens::kParse), ids) << text;
    EXPECT_EQ(tokenizer_.decode(ids, SpecialTokens::kAsText), text_of(item, "decoded"));
  }
}

TEST_P(Golden, StreamsWhatItDecodes) {
  for (const auto& item : expected_.at("encode").as_array()) {
    const std::vector<int32_t> ids = ids_of(item.at("ids"));
    Detokenizer stream(tokenizer_);
    std::string text;
    for (const int32_t id : ids) text += stream.push(id);
    text += stream.finish();
    EXPECT_EQ(text, tokenizer_.decode(ids, SpecialTokens::kParse));
  }
}

TEST_P(Golden, RendersChatsAsTransformers) {
  const boost::json::value config = read_json(golden(GetParam()) / "tokenizer_config.json");
  const ChatTemplate chat(read_file(golden(GetParam()) / "chat_template.jinja"),
                          text_of(config, "bos_token"), text_of(config, "eos_token"));
  for (const auto& item : expected_.at("chat").as_array()) {
    const auto rendered = chat.render(tokenizer_, boost::json::serialize(item.at("messages")),
                                      item.at("add_generation_prompt").as_bool(), "");
    EXPECT_EQ(rendered.text, text_of(item, "rendered"));
    EXPECT_EQ(rendered.ids, tokenizer_.encode(rendered.text, SpecialTokens::kParse));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, testing::ValuesIn(families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace cohort::text
