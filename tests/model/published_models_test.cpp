// Models as they are published: configs that leave out defaults, wrappers that read images, too,
// and what a config says of the tensors beside it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kv/scheme.h"
#include "model/checkpoint.h"
#include "model/decoder.h"
#include "model/model.h"
#include "tests/support/crowd.h"
#include "tests/support/refusal.h"

namespace cohort::model {
namespace families {
DecoderSpec gemma3(const Source& source);
}
namespace {

namespace json = boost::json;

constexpr std::array<float, 512> kZeros{};

Checkpoint golden(const std::string& folder) {
  return Checkpoint::open(COHORT_GOLDENS "/" + folder);
}

void sort(Checkpoint& checkpoint) {
  std::ranges::sort(checkpoint.tensors, {}, &TensorView::name);
}

/// Adds an f32 tensor of zeros.
void add(Checkpoint& checkpoint, const std::string& name, std::vector<int64_t> shape) {
  const auto bytes = static_cast<size_t>(stored_bytes(TensorType::kF32, shape).value());
  checkpoint.tensors.push_back(
      {name, TensorType::kF32, std::move(shape), std::as_bytes(std::span(kZeros)).first(bytes)});
  sort(checkpoint);
}

std::string refusal(const Checkpoint& checkpoint, ErrorKind kind = ErrorKind::kInvalidRequest) {
  kernels::cpu::Cpu cpu(1);
  return test::refusal([&] { load_model(checkpoint, {}, cpu); }, kind);
}

/// Of some tokens at every position; `said` receives the lines for a person.
std::vector<float> logits(const Checkpoint& checkpoint, std::vector<std::string>* said = nullptr) {
  kernels::cpu::Cpu cpu(1);
  LoadOptions options{.exact = true};
  if (said != nullptr) options.log = [said](std::string_view line) { said->emplace_back(line); };
  const auto model = load_model(checkpoint, options, cpu);
  const auto precision = kv::resolve({.dense_bf16 = false}, model->shape().layers);
  return test::known_row(*model, cpu, "", precision, {5, 9, 200, 31, 7, 42, 42, 3}).logits;
}

/// How a wrapper names what is "model." and "lm_head." alone, and what is before its other parts.
struct Form {
  std::string model, head, other;
};
const Form kForms[] = {{"language_model.model.", "language_model.lm_head.", ""},
                       {"model.language_model.", "lm_head.", "model."}};

/// The golden model inside a wrapper that reads images, too.
Checkpoint wrapped(const std::string& folder, const Form& form) {
  Checkpoint checkpoint = golden(folder);
  checkpoint.config = {{"model_type", "wrapper"}, {"text_config", checkpoint.config}};
  for (TensorView& tensor : checkpoint.tensors) {
    const bool head = tensor.name.starts_with("lm_head.");
    const size_t dot = tensor.name.find('.') + 1;
    tensor.name = (head ? form.head : form.model) + tensor.name.substr(dot);
  }
  const std::string tower = form.other + "vision_tower.vision_model.";
  add(checkpoint, tower + "embeddings.patch_embedding.weight", {2, 3, 4, 4});
  add(checkpoint, tower + "encoder.layers.0.self_attn.q_proj.weight", {8, 8});
  add(checkpoint, form.other + "multi_modal_projector.mm_input_projection_weight", {8, 16});
  return checkpoint;
}

TEST(PublishedModels, AWrapperThatReadsImagesServesTextAndSaysSoOnce) {
  for (const std::string folder : {"gemma3", "llama", "quantized/llama_q4_g64"}) {
    for (const Form& form : kForms) {
      SCOPED_TRACE(folder + " as " + form.model);
      std::vector<std::string> said;
      const Checkpoint alone = golden(folder), both = wrapped(folder, form);
      EXPECT_EQ(logits(alone, &said), logits(both, &said));
      ASSERT_EQ(said.size(), 1U);
      EXPECT_EQ(said[0], both.path + ": its parts for images are left out: " + form.other +
                             "vision_tower.*, " + form.other + "multi_modal_projector.*");
      EXPECT_EQ(packed_bytes(alone), packed_bytes(both));
    }
  }
}

TEST(PublishedModels, OtherPartsOfAWrapperAreAnError) {
  for (const Form& form : kForms) {
    for (const std::string part : {"audio_tower.conv.weight", "vision_tower_2.conv.weight"}) {
      Checkpoint checkpoint = wrapped("gemma3", form);
      add(checkpoint, form.other + part, {8});
      EXPECT_TRUE(
          refusal(checkpoint)
              .ends_with("tensors that the model does not use: '" + form.other + part + "'"))
          << refusal(checkpoint);
    }
  }
  Checkpoint alone = golden("gemma3");
  add(alone, "vision_tower.conv.weight", {8});
  EXPECT_NE(refusal(alone).find("does not use: 'vision_tower.conv.weight'"), std::string::npos);
}

TEST(PublishedModels, AGgufFileOfGemmaIsNotTakenForTheDefaultModel) {
  const auto bare = Checkpoint::open(COHORT_CORPUS "/gguf/ok_gemma3_bare.gguf");
  EXPECT_NE(test::refusal([&] { read_shape(bare); }).find("\"hidden_size\" must be an integer"),
            std::string::npos);
}

TEST(PublishedModels, TheQueriesOfGemma27BAreScaledByTheirShareOfTheWidth) {
  const auto opened = Checkpoint::open(COHORT_CORPUS "/gguf/ok_gemma3_27b.gguf");
  EXPECT_FLOAT_EQ(families::gemma3(Source(opened)).query_scale, 1 / std::sqrt(168.0f));
}

/// The text_config of published folders of Gemma 3.
const json::object kTextConfigs[] = {
    {{"hidden_size", 2560},
     {"intermediate_size", 10240},
     {"model_type", "gemma3_text"},
     {"num_hidden_layers", 34},
     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
     {"sliding_window", 1024}},
    {{"hidden_size", 3840},
     {"intermediate_size", 15360},
     {"model_type", "gemma3_text"},
     {"num_attention_heads", 16},
     {"num_hidden_layers", 48},
     {"num_key_value_heads", 8},
     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
     {"sliding_window", 1024}},
    {{"head_dim", 128},
     {"hidden_size", 5376},
     {"intermediate_size", 21504},
     {"model_type", "gemma3_text"},
     {"num_attention_heads", 32},
     {"num_hidden_layers", 62},
     {"num_key_value_heads", 16},
     {"query_pre_attn_scalar", 168},
     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
     {"sliding_window", 1024}},
    {{"model_type", "gemma3_text"}},
};

/// What they leave out.
///   source  transformers models/gemma3/configuration_gemma3.py, Gemma3TextConfig
const json::object kDefaults = {
    {"vocab_size", 262208},      {"hidden_size", 2304},
    {"intermediate_size", 9216}, {"num_hidden_layers", 26},
    {"num_attention_heads", 8},  {"num_key_value_heads", 4},
    {"head_dim", 256},           {"max_position_embeddings", 131072},
    {"rms_norm_eps", 1e-6},      {"query_pre_attn_scalar", 256},
    {"sliding_window", 4096},    {"sliding_window_pattern", 6},
    {"rope_theta", 1000000.0},   {"rope_local_base_freq", 10000.0},
    {"attention_bias", false},   {"hidden_activation", "gelu_pytorch_tanh"},
    {"rope_scaling", nullptr},
};

Checkpoint gemma(json::object text_config) {
  Checkpoint checkpoint;
  checkpoint.path = "gemma";
  checkpoint.config = {{"model_type", "gemma3"}, {"text_config", std::move(text_config)}};
  return checkpoint;
}

std::vector<float> table(const nn::Rope& rope) {
  mx::array values = rope.table(std::array<int64_t, 2>{1, 5000});
  values.eval();
  return {values.data<float>(), values.data<float>() + values.size()};
}

TEST(PublishedModels, WhatAGemmaConfigLeavesOutIsTheDefaultOfTransformers) {
  for (const json::object& published : kTextConfigs) {
    SCOPED_TRACE(json::serialize(published));
    json::object all = kDefaults;
    for (const auto& [key, value] : published) all[key] = value;
    const Checkpoint short_one = gemma(published), long_one = gemma(all);
    DecoderSpec got = families::gemma3(Source(short_one));
    DecoderSpec want = families::gemma3(Source(long_one));
    EXPECT_EQ(got.heads, want.heads);
    EXPECT_EQ(got.intermediate_size, want.intermediate_size);
    EXPECT_EQ(got.norm_eps, want.norm_eps);
    EXPECT_EQ(got.query_scale, want.query_scale);
    EXPECT_EQ(got.embedding_scale, want.embedding_scale);
    EXPECT_EQ(got.shape.vocab_size, want.shape.vocab_size);
    EXPECT_EQ(got.shape.hidden_size, want.shape.hidden_size);
    EXPECT_EQ(got.shape.context_tokens, want.shape.context_tokens);
    EXPECT_EQ(got.layer_rope, want.layer_rope);
    ASSERT_EQ(got.shape.layers.size(), want.shape.layers.size());
    for (size_t i = 0; i < got.shape.layers.size(); ++i) {
      EXPECT_EQ(got.kv(i).kv_heads, want.kv(i).kv_heads);
      EXPECT_EQ(got.kv(i).head_dim, want.kv(i).head_dim);
      EXPECT_EQ(got.kv(i).window, want.kv(i).window);
    }
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(table(got.ropes[i]), table(want.ropes[i]));
  }
}

TEST(PublishedModels, BiasesAreThereIfTheConfigSaysSoAndOnlyThen) {
  const auto with_biases = [](bool stated) {
    Checkpoint checkpoint = golden("llama");
    for (const char* flag : {"attention_bias", "mlp_bias"}) checkpoint.config[flag] = stated;
    const std::vector<TensorView> all = checkpoint.tensors;
    for (const TensorView& tensor : all) {
      const size_t at = tensor.name.find("_proj.weight");
      if (at == std::string::npos) continue;
      add(checkpoint, tensor.name.substr(0, at) + "_proj.bias", {tensor.shape[0]});
    }
    return checkpoint;
  };
  Checkpoint whole = with_biases(true);
  EXPECT_EQ(logits(whole), logits(golden("llama")));  // they are zero
  EXPECT_NE(refusal(with_biases(false)).find("does not use: 'model.layers.0.mlp.down_proj.bias', "),
            std::string::npos);
  for (const char* module : {"self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj",
                             "mlp.gate_proj", "mlp.down_proj"}) {
    Checkpoint lacking = with_biases(true);
    const std::string name = fmt::format("model.layers.2.{}.bias", module);
    std::erase_if(lacking.tensors, [&](const TensorView& t) { return t.name == name; });
    EXPECT_TRUE(refusal(lacking).ends_with("missing tensors: " + name)) << refusal(lacking);
  }
}

TEST(PublishedModels, AModeOfQuantizationIsNamedAndNotTheTensorsThatItLacks) {
  Checkpoint checkpoint = golden("quantized/llama_q4_g32");
  for (const char* key : {"quantization", "quantization_config"}) {
    checkpoint.config[key] = {{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}};
  }
  std::erase_if(checkpoint.tensors,
                [](const TensorView& t) { return t.name.ends_with(".biases"); });
  const std::string said =
      "tensor 'model.embed_tokens.weight': the quantization mode 'mxfp4' is not supported; "
      "supported: affine";
  EXPECT_EQ(refusal(checkpoint, ErrorKind::kUnsupported), said);
  checkpoint.config["quantization"] = {{"group_size", 32}, {"bits", 4}};
  EXPECT_NE(refusal(checkpoint).find("missing tensors: model.embed_tokens.biases, "),
            std::string::npos);
}

}  // namespace
}  // namespace cohort::model
