#include "tests/support/random_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "kernels/cpu/packed_matrix.h"
#include "tests/support/random_data.h"

namespace cohort::test {
namespace {

namespace json = boost::json;
using model::TensorType;

constexpr int kHeads = 4, kKvHeads = 2;
// Block formats need whole blocks of 256 inputs.
constexpr int kHidden = 64, kBlockHidden = 256;
// Of a matrix over inputs of size 1. Scores of queries and keys then have a deviation of 2.
constexpr float kGain = 1.4f;

/// How the random model of a family differs from a plain one.
struct Recipe {
  std::string_view family, model_type;
  float norm_mean;     // of the stored weights
  float qk_norm_mean;  // of queries and keys of each head; 0 = none
  bool sandwich_norms;
  int64_t window, pattern;  // every `pattern`th layer has no window; 0 = none has
};
constexpr Recipe kRecipes[] = {
    {"llama", "llama", 1, 0, false, 0, 0},
    {"gemma3", "gemma3_text", 0, 0.4f, true, 100, 2},
};

const Recipe& recipe_of(const std::string& family) {
  const auto recipe = std::ranges::find(kRecipes, family, &Recipe::family);
  check(recipe != std::end(kRecipes), "tests/support/random_checkpoint.cpp knows every family");
  return *recipe;
}

int hidden_of(const RandomModel& model) {
  return model.blocks ? kBlockHidden : kHidden;
}

json::object config_of(const RandomModel& model) {
  const Recipe& recipe = recipe_of(model.family);
  json::object config{{"model_type", recipe.model_type},
                      {"hidden_size", hidden_of(model)},
                      {"intermediate_size", hidden_of(model)},
                      {"num_hidden_layers", model.layers},
                      {"num_attention_heads", kHeads},
                      {"num_key_value_heads", kKvHeads},
                      {"head_dim", model.head_dim},
                      {"vocab_size", model.vocab},
                      {"max_position_embeddings", 4096},
                      {"tie_word_embeddings", false}};
  if (recipe.window > 0) {
    config["sliding_window"] = recipe.window;
    config["sliding_window_pattern"] = recipe.pattern;
    config["query_pre_attn_scalar"] = model.head_dim;
  }
  return config;
}

/// How a block format keeps its 16-bit scales: where, and what gives weights of about 0.05.
struct BlockScales {
  TensorType type;
  int scale_at;
  float scale;
  int min_at;  // -1: none
  float min;
};
constexpr BlockScales kBlockScales[] = {
    {TensorType::kQ4_0, 0, 0.01f, -1, 0},        {TensorType::kQ4_1, 0, 0.01f, 2, -0.08f},
    {TensorType::kQ5_0, 0, 0.005f, -1, 0},       {TensorType::kQ5_1, 0, 0.005f, 2, -0.08f},
    {TensorType::kQ8_0, 0, 0.0006f, -1, 0},      {TensorType::kQ4_K, 0, 0.0002f, 2, 0.0015f},
    {TensorType::kQ5_K, 0, 0.0001f, 2, 0.0015f}, {TensorType::kQ6_K, 208, 0.00003f, -1, 0},
};

void put_half(std::byte* block, int offset, float value) {
  if (offset < 0) return;
  const uint16_t bits = kernels::cpu::f32_to_f16(value);
  std::memcpy(block + offset, &bits, 2);
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

std::vector<std::string> random_families() {
  return {
#define MODEL_FAMILY(factory, ...) #factory,
#include "model/families.def"
#undef MODEL_FAMILY
  };
}

RandomCheckpoint::RandomCheckpoint(const RandomModel& model) : model_(model) {
  opened_.path = "random " + model.family;
  opened_.config = config_of(model);
  add_matrix("model.embed_tokens", model.vocab, hidden_of(model));
  for (int i = 0; i < model.layers; ++i) add_layer("model.layers." + std::to_string(i) + ".");
  add_norm("model.norm", hidden_of(model), recipe_of(model.family).norm_mean);
  add_matrix("lm_head", model.vocab, hidden_of(model));
  std::ranges::sort(opened_.tensors, {}, &model::TensorView::name);
}

void RandomCheckpoint::add_layer(const std::string& at) {
  const Recipe& recipe = recipe_of(model_.family);
  const int hidden = hidden_of(model_), dim = model_.head_dim;
  add_norm(at + "input_layernorm", hidden, recipe.norm_mean);
  add_norm(at + "post_attention_layernorm", hidden, recipe.norm_mean);
  if (recipe.sandwich_norms) {
    add_norm(at + "pre_feedforward_layernorm", hidden, recipe.norm_mean);
    add_norm(at + "post_feedforward_layernorm", hidden, recipe.norm_mean);
  }
  if (recipe.qk_norm_mean > 0) {
    add_norm(at + "self_attn.q_norm", dim, recipe.qk_norm_mean);
    add_norm(at + "self_attn.k_norm", dim, recipe.qk_norm_mean);
  }
  add_matrix(at + "self_attn.q_proj", kHeads * dim, hidden);
  add_matrix(at + "self_attn.k_proj", kKvHeads * dim, hidden);
  add_matrix(at + "self_attn.v_proj", kKvHeads * dim, hidden);
  add_matrix(at + "self_attn.o_proj", hidden, kHeads * dim);
  for (const char* part : {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    add_matrix(at + part, hidden, hidden);
  }
}

void RandomCheckpoint::add_norm(const std::string& module, int size, float mean) {
  std::vector<float> weights =
      random_floats(static_cast<size_t>(size), model_.seed * 1000 + tensors_, 0.1f);
  for (float& weight : weights) weight += mean;
  add(module, TensorType::kF32, {size}, bytes_of(weights));
}

void RandomCheckpoint::add_matrix(const std::string& module, int rows, int cols) {
  if (model_.blocks) return add_blocks(module, rows, cols);
  const float scale = kGain / std::sqrt(static_cast<float>(cols));
  add(module, TensorType::kF32, {rows, cols},
      bytes_of(random_floats(static_cast<size_t>(rows) * static_cast<size_t>(cols),
                             model_.seed * 1000 + tensors_, scale)));
}

void RandomCheckpoint::add_blocks(const std::string& module, int rows, int cols) {
  const BlockScales& format = kBlockScales[matrices_++ % std::size(kBlockScales)];
  const std::vector<int64_t> shape{rows, cols};
  const auto size = static_cast<size_t>(stored_bytes(format.type, shape).value());
  std::vector<std::byte> bytes = bytes_of(random_bytes(size, model_.seed * 1000 + tensors_));
  const auto block = static_cast<size_t>(info(format.type).block_bytes);
  for (size_t at = 0; at < size; at += block) {
    put_half(bytes.data() + at, format.scale_at, format.scale);
    put_half(bytes.data() + at, format.min_at, format.min);
  }
  add(module, format.type, shape, std::move(bytes));
}

void RandomCheckpoint::add(const std::string& module, TensorType type, std::vector<int64_t> shape,
                           std::vector<std::byte> bytes) {
  ++tensors_;
  storage_.push_back(std::move(bytes));
  opened_.tensors.push_back({module + ".weight", type, std::move(shape), storage_.back()});
}

void RandomCheckpoint::write(const std::string& folder) const {
  json::object header;
  size_t end = 0;
  for (const model::TensorView& tensor : opened_.tensors) {
    const size_t begin = end;
    end += tensor.bytes.size();
    header[tensor.name] = {{"dtype", info(tensor.type).name},
                           {"shape", json::value_from(tensor.shape)},
                           {"data_offsets", {begin, end}}};
  }
  const std::string text = json::serialize(header);
  const uint64_t size = text.size();
  std::filesystem::create_directories(folder);
  std::ofstream file(folder + "/model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size) << text;
  for (const model::TensorView& tensor : opened_.tensors) {
    file.write(reinterpret_cast<const char*>(tensor.bytes.data()),
               static_cast<std::streamsize>(tensor.bytes.size()));
  }
  std::ofstream(folder + "/config.json") << json::serialize(opened_.config);
}

}  // namespace cohort::test
