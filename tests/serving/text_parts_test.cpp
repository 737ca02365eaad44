// What serving takes from a checkpoint besides its weights.

#include "serving/text_parts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "model/checkpoint.h"
#include "tests/support/refusal.h"

namespace cohort::serving {
namespace {

namespace json = boost::json;

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

using test::refusal;

/// Whether the refusal is that of a key's value that is no id.
bool refuses(const std::string& said, const std::string& key, int32_t vocab_size = kVocab) {
  return said.find(fmt::format("\"{}\" must be token ids from 0 to {}", key, vocab_size - 1)) !=
         std::string::npos;
}

TEST(EndTokens, OfAConfigAreInTheVocabulary) {
  for (const char* wrong : {"-1", "327", "9223372036854775807", "18446744073709551615", "1.0",
                            "true", "\"1\"", "{}", "[1, -1]", "[1, 327]", "[null]", "[[1]]"}) {
    const std::string end = refusal([&] { ends(wrong); });
    EXPECT_TRUE(refuses(end, "eos_token_id")) << wrong << ": " << end;
  }
}

TEST(SpecialTokens, OfATokenizerWithMoreTokensThanTheModelAreInTheModels) {
  model::Checkpoint bare = llama();
  bare.config = {};
  bare.generation_config.reset();
  (*bare.tokenizer_config)["tokenizer_class"] = "LlamaTokenizer";
  (*bare.tokenizer_config)["add_bos_token"] = true;
  const text::Tokenizer tokenizer = load_tokenizer(bare);
  const std::string leading = refusal([&] { leading_tokens(bare, tokenizer, 316); });
  EXPECT_TRUE(refuses(leading, "bos_token", 316)) << leading;
  EXPECT_EQ(end_tokens(bare, tokenizer, 317), std::set<int32_t>{});  // it cannot be answered
  model::Checkpoint nameless = model::Checkpoint::open(std::string(COHORT_GOLDENS) + "/gemma3");
  nameless.config = {};
  nameless.generation_config.reset();
  nameless.tokenizer_config.reset();
  const std::string post = refusal([&] { leading_tokens(nameless, load_tokenizer(nameless), 2); });
  EXPECT_TRUE(refuses(post, "post_processor", 2)) << post;
}

/// A GGUF file of four tokens that states the id of a special one.
model::Checkpoint gguf(const std::string& key, int64_t id) {
  using model::GgufArray, model::GgufType;
  model::Checkpoint checkpoint =
      model::Checkpoint::open(std::string(COHORT_CORPUS) + "/gguf/ok_nothing.gguf");
  model::GgufMetadata& metadata = checkpoint.gguf->index.metadata;
  static constexpr float kScores[4] = {};
  metadata.add("tokenizer.ggml.model", {GgufType::kString, std::string_view("llama")});
  metadata.add(
      "tokenizer.ggml.tokens",
      {GgufType::kArray, GgufArray{GgufType::kString, 4, {}, {"<unk>", "<s>", "</s>", "a"}}});
  metadata.add("tokenizer.ggml.scores",
               {GgufType::kArray, GgufArray{GgufType::kF32, 4, std::as_bytes(std::span(kScores))}});
  metadata.add("tokenizer.ggml." + key, {GgufType::kI64, id});
  return checkpoint;
}

TEST(SpecialTokens, OfAGgufFileAreInItsVocabulary) {
  const auto leading = [](const model::Checkpoint& checkpoint) {
    return leading_tokens(checkpoint, load_tokenizer(checkpoint), 4);
  };
  const auto ends_of = [](const model::Checkpoint& checkpoint) {
    return end_tokens(checkpoint, load_tokenizer(checkpoint), 4);
  };
  EXPECT_EQ(leading(gguf("bos_token_id", 1)), std::vector{1});
  EXPECT_EQ(leading(gguf("bos_token_id", 3)), std::vector{3});
  EXPECT_EQ(ends_of(gguf("eos_token_id", 2)), std::set{2});
  EXPECT_EQ(ends_of(gguf("eot_token_id", 3)), std::set{3});
  for (const int64_t wrong : {int64_t{-1}, int64_t{4}, int64_t{UINT32_MAX}, INT64_MAX}) {
    EXPECT_EQ(load_tokenizer(gguf("unknown_token_id", wrong)).token_to_id("<s>"), 1);
    for (const char* key : {"bos_token_id", "eos_token_id", "eot_token_id"}) {
      const std::string said = refusal([&] {
        const model::Checkpoint checkpoint = gguf(key, wrong);
        leading(checkpoint);
        ends_of(checkpoint);
      });
      EXPECT_TRUE(refuses(said, std::string("tokenizer.ggml.") + key, 4)) << wrong << ": " << said;
    }
  }
}

/// What precedes the texts of a golden model with these entries in its tokenizer_config.json.
std::vector<int32_t> leading(const std::string& name, std::string_view entries = "{}") {
  model::Checkpoint checkpoint = model::Checkpoint::open(std::string(COHORT_GOLDENS) + "/" + name);
  for (const auto& entry : parse_json_object(entries, "test")) {
    (*checkpoint.tokenizer_config)[entry.key()] = entry.value();
  }
  return leading_tokens(checkpoint, load_tokenizer(checkpoint), kVocab);
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
