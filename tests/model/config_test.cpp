// A config or a tensor list that is wrong is one clear error, before anything large is allocated.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "base/json.h"
#include "model/checkpoint.h"
#include "model/model.h"

namespace cohort::model {
namespace {

namespace json = boost::json;

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The error of loading tests/goldens/FOLDER with some config keys replaced (null = removed).
std::string refusal(const std::string& folder, const json::object& changes) {
  const std::string golden = std::string(COHORT_GOLDENS) + "/" + folder;
  const std::string copy = testing::TempDir() + fmt::format("/changed_config_{}", ::getpid());
  std::filesystem::remove_all(copy);
  std::filesystem::create_directories(copy);
  std::filesystem::copy_file(golden + "/model.safetensors", copy + "/model.safetensors");
  json::object config = parse_json_object(read_file(golden + "/config.json"), "config.json");
  for (const auto& [key, value] : changes) {
    config.erase(key);
    if (!value.is_null()) config[key] = value;
  }
  std::ofstream(copy + "/config.json") << json::serialize(config);
  kernels::cpu::Cpu cpu(1);
  try {
    load_model(Checkpoint::open(copy), {}, cpu);
    return "(loaded)";
  } catch (const Error& error) {
    return error.what();
  }
}

struct Wrong {
  const char* folder;
  json::object changes;
  const char* said;
};

void expect_refusals(std::span<const Wrong> cases) {
  for (const Wrong& c : cases) {
    EXPECT_NE(refusal(c.folder, c.changes).find(c.said), std::string::npos)
        << json::serialize(c.changes) << " -> " << refusal(c.folder, c.changes);
  }
}

TEST(Config, AWrongValueIsNamedWithWhatIsAllowed) {
  const Wrong cases[] = {
      {"llama", {{"num_attention_heads", 0}}, "\"num_attention_heads\" must be an integer from 1"},
      {"llama", {{"num_attention_heads", nullptr}}, "and is missing"},
      {"llama", {{"head_dim", 1000000000}}, "\"head_dim\" must be an integer from 2 to 1024"},
      {"llama", {{"head_dim", 15}}, "the dimension even"},
      {"llama",
       {{"head_dim", nullptr},
        {"hidden_size", 4096},
        {"num_attention_heads", 1},
        {"num_key_value_heads", 1}},
       "of dimension 4096: "},
      {"llama", {{"num_key_value_heads", 3}}, "a multiple of kv heads"},
      {"llama", {{"hidden_size", "64"}}, "\"hidden_size\" must be an integer"},
      {"llama", {{"hidden_size", -64}}, "\"hidden_size\" must be an integer"},
      {"llama", {{"hidden_size", 1.5}}, "\"hidden_size\" must be an integer"},
      {"llama", {{"rms_norm_eps", -1}}, "\"rms_norm_eps\" must be a number above 0"},
      {"llama", {{"model_type", "nonesuch"}}, "supported: llama, mistral, gemma3"},
      {"llama", {{"model_type", nullptr}}, "config has no \"model_type\""},
      {"llama", {{"rms_norm_eps", 1e-300}}, "\"rms_norm_eps\" must be a number above 0"},
      {"llama",
       {{"layer_types", json::array{"full_attention"}}, {"sliding_window", 8}},
       "\"layer_types\" has 1 entries for 4 layers"},
      {"llama",
       {{"layer_types",
         json::array{"full_attention", "chunked_attention", "full_attention", "full_attention"}}},
       "\"layer_types\" holds '\"chunked_attention\"'; supported: full_attention, "
       "sliding_attention"},
      {"gemma3",
       {{"layer_types", json::array(6, json::value(7))}},
       "\"layer_types\" holds '7'; supported"},
      {"llama", {{"hidden_act", "relu2"}}, "\"hidden_act\" is 'relu2'; supported: silu"},
      {"gemma3",
       {{"hidden_activation", "silu"}},
       "\"hidden_activation\" is 'silu'; supported: gelu"},
      {"llama", {{"partial_rotary_factor", 0.5}}, "\"partial_rotary_factor\" is 0.5; supported: 1"},
      {"llama", {{"quantization", {{"group_size", 3}, {"bits", 4}}}}, "group_size"},
      {"gemma3", {{"final_logit_softcapping", 30.0}}, "\"final_logit_softcapping\""},
      {"gemma3", {{"sliding_window", 0}}, "\"sliding_window\" must be an integer from 1"},
  };
  expect_refusals(cases);
}

TEST(Config, AWrongRotarySettingIsNamedWithWhatIsAllowed) {
  const Wrong cases[] = {
      {"llama",
       {{"rope_parameters", {{"rope_type", "warp"}}}},
       "\"rope_type\" is 'warp'; supported: default, linear, yarn, llama3"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 0}}}},
       "\"factor\" must be"},
      {"llama", {{"rope_parameters", "junk"}}, "\"rope_parameters\" must be an object"},
      {"llama", {{"rope_parameters", {{"rope_type", 3}}}}, "\"rope_type\" must be a string"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 1e-300}}}},
       "\"factor\" must be a number above 0"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 0.5}}}},
       "\"factor\" is 0.5, must be from 1 to 1000000"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "linear"}, {"factor", -4}}}},
       "\"factor\" must be a number above 0"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "linear"}, {"factor", true}}}},
       "\"factor\" must be a number above 0"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "linear"}}}},
       "\"factor\" is missing: rope type linear needs it"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", nullptr}}}},
       "\"factor\" is missing: rope type yarn needs it"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 1}}}},
       "\"beta_fast\" is 1 and must be above \"beta_slow\", which is 1"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}, {"mscale", 1e30}}}},
       "\"mscale\" is 1e+30, must be from 0 to 1000"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1}}}},
       "\"rope_theta\" is 1, must be from 2 to 1000000000000000"},
      {"llama_rope3",
       {{"rope_parameters", {{"rope_type", "llama3"}, {"factor", 8}}}},
       "\"original_max_position_embeddings\" is missing: rope type llama3 needs it"},
      {"llama_rope3",
       {{"rope_parameters",
         {{"rope_type", "llama3"},
          {"factor", 8},
          {"original_max_position_embeddings", 64},
          {"low_freq_factor", 4},
          {"high_freq_factor", 4}}}},
       "\"high_freq_factor\" is 4 and must be above \"low_freq_factor\", which is 4"},
      {"gemma3",
       {{"rope_parameters", {{"sliding_attention", {{"rope_type", "longrope"}}}}}},
       "\"rope_type\" is 'longrope'; supported"},
  };
  expect_refusals(cases);
}

TEST(Config, MissingUnusedAndMisshapenTensorsAreOneError) {
  const std::string fewer = refusal("llama", {{"num_hidden_layers", 3}});
  EXPECT_NE(fewer.find("tensors that the model does not use: 'model.layers.3."), std::string::npos)
      << fewer;
  const std::string more = refusal("llama", {{"num_hidden_layers", 4000}});
  EXPECT_NE(more.find("missing tensors: model.layers.4."), std::string::npos) << more;
  EXPECT_NE(more.find(" more"), std::string::npos) << more;
  const std::string wider = refusal("llama", {{"intermediate_size", 4194304}});
  EXPECT_NE(wider.find("is [128, 64], must be [4194304, 64]"), std::string::npos) << wider;
}

TEST(Config, TensorsThatAConfigPromisesMustBeThere) {
  const Wrong cases[] = {
      {"llama",
       {{"attention_bias", true}},
       "missing tensors: model.layers.0.self_attn.q_proj.bias, "
       "model.layers.0.self_attn.k_proj.bias, model.layers.0.self_attn.v_proj.bias, "
       "model.layers.0.self_attn.o_proj.bias, model.layers.1."},
      {"llama",
       {{"mlp_bias", true}},
       "missing tensors: model.layers.0.mlp.gate_proj.bias, model.layers.0.mlp.up_proj.bias, "
       "model.layers.0.mlp.down_proj.bias, model.layers.1."},
      {"gemma3", {{"attention_bias", true}}, "missing tensors: model.layers.0.self_attn.q_proj."},
      {"gemma3", {{"tie_word_embeddings", false}}, "missing tensors: lm_head.weight"},
      {"llama", {{"attention_bias", "no"}}, "\"attention_bias\" must be true or false"},
  };
  expect_refusals(cases);
}

TEST(Config, BothPublishedFormsAndATextConfigLoad) {
  EXPECT_EQ(refusal("llama", {}), "(loaded)");
  const json::object config = parse_json_object(
      read_file(std::string(COHORT_GOLDENS) + "/gemma3/config.json"), "config.json");
  json::object wrapped{{"model_type", "gemma3_text"}, {"text_config", config}};
  for (const auto& [key, value] : config) {
    if (key != "model_type") wrapped[key] = nullptr;  // removed from the top
  }
  EXPECT_EQ(refusal("gemma3", wrapped), "(loaded)");
}

}  // namespace
}  // namespace cohort::model
