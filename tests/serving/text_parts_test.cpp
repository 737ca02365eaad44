// What serving takes from a checkpoint besides its weights.

#include "serving/text_parts.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "model/checkpoint.h"

namespace cohort::serving {
namespace {

constexpr int32_t kVocab = 327;

model::Checkpoint llama() {
  return model::Checkpoint::open(std::string(COHORT_GOLDENS) + "/llama");
}

/// The end tokens of the golden llama when both of its configs state `eos_token_id`.
std::set<int32_t> ends(std::string_view eos_token_id) {
  model::Checkpoint checkpoint = llama();
  checkpoint.config["eos_token_id"] = parse_json(eos_token_id, "test");
  checkpoint.generation_config->erase("eos_token_id");
  return end_tokens(checkpoint, load_tokenizer(checkpoint), kVocab);
}

TEST(EndTokens, AreTheUnionOfWhatTheCheckpointStates) {
  const model::Checkpoint checkpoint = llama();
  const std::set<int32_t> named = ends("null");  // by tokenizer_config.json
  EXPECT_EQ(named.size(), 1U);
  std::set<int32_t> all = named;
  all.insert({321, 317});
  EXPECT_EQ(end_tokens(checkpoint, load_tokenizer(checkpoint), kVocab), all);
  EXPECT_EQ(ends("[]"), named);
  EXPECT_TRUE(ends("0").contains(0));
  EXPECT_TRUE(ends("[5, 326]").contains(326));
}

TEST(EndTokens, AnIdThatIsNoneIsAnError) {
  for (const char* wrong : {"-1", "327", "9223372036854775807", "18446744073709551615", "1.0",
                            "true", "\"1\"", "{}", "[1, -1]", "[1, 327]", "[null]", "[[1]]"}) {
    try {
      ends(wrong);
      ADD_FAILURE() << wrong << " was taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("\"eos_token_id\" must be token ids from 0 to 326"),
                std::string::npos)
          << error.what();
    }
  }
}

/// What precedes the texts of a golden model with these entries in its tokenizer_config.json.
std::vector<int32_t> leading(const std::string& name, std::string_view entries = "{}") {
  model::Checkpoint checkpoint = model::Checkpoint::open(std::string(COHORT_GOLDENS) + "/" + name);
  for (const auto& entry : parse_json_object(entries, "test")) {
    (*checkpoint.tokenizer_config)[entry.key()] = entry.value();
  }
  return leading_tokens(checkpoint, load_tokenizer(checkpoint));
}

TEST(LeadingTokens, AreWhatThePostProcessorPutsThere) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(leading("gemma3"), Ids{2});
  EXPECT_EQ(leading("llama"), Ids{});
  EXPECT_EQ(leading("gemma3", R"({"add_bos_token": false})"), Ids{2});
  EXPECT_EQ(leading("llama", R"({"add_bos_token": true})"), Ids{});
  EXPECT_EQ(leading("llama", R"({"add_bos_token": true, "tokenizer_class": 7})"), Ids{});
}

TEST(LeadingTokens, OfClassesThatRebuildThePostProcessorAreAsStated) {
  using Ids = std::vector<int32_t>;
  for (const std::string name :
       {"LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast"}) {
    const std::string of_class = R"({"tokenizer_class": ")" + name + "\"";
    EXPECT_EQ(leading("gemma3", of_class + "}"), Ids{2});
    EXPECT_EQ(leading("gemma3", of_class + R"(, "add_bos_token": null})"), Ids{2});
    EXPECT_EQ(leading("gemma3", of_class + R"(, "add_bos_token": false})"), Ids{});
    EXPECT_EQ(leading("llama", of_class + R"(, "add_bos_token": true})"), Ids{316});
    const std::string no_bos = of_class + R"(, "add_bos_token": true, "bos_token": )";
    EXPECT_EQ(leading("llama", no_bos + "null}"), Ids{});
    EXPECT_EQ(leading("llama", no_bos + "\"no such token\"}"), Ids{});
  }
}

}  // namespace
}  // namespace cohort::serving
