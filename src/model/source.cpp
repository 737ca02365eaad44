#include "model/source.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace cohort::model {
namespace {

namespace json = boost::json;

/// GGUF names of modules inside a layer, by published name.
///   source  GGUF specification, "standardized tensor names"
constexpr std::pair<std::string_view, std::string_view> kLayerModules[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

constexpr std::pair<std::string_view, std::string_view> kModules[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"rope_freqs", "rope_freqs"},
};

template <class Pairs>
std::string_view lookup(const Pairs& pairs, std::string_view key) {
  for (const auto& [published, stored] : pairs) {
    if (published == key) return stored;
  }
  return key;
}

std::string gguf_name(std::string_view published, bool gemma) {
  const size_t dot = published.rfind('.');
  const std::string_view module = published.substr(0, dot), kind = published.substr(dot);
  constexpr std::string_view kLayers = "model.layers.";
  if (!module.starts_with(kLayers))
    return std::string(lookup(kModules, module)) + std::string(kind);
  const std::string_view rest = module.substr(kLayers.size());
  const size_t split = rest.find('.');
  const std::string_view part = rest.substr(split + 1);
  std::string_view stored = lookup(kLayerModules, part);
  // One published name, two meanings: the norm after attention, or (llama) the one before the MLP.
  if (part == "post_attention_layernorm") stored = gemma ? "post_attention_norm" : "ffn_norm";
  return "blk." + std::string(rest.substr(0, split)) + "." + std::string(stored) +
         std::string(kind);
}

/// What folders call the tensors of a language model, alone or inside a wrapper that reads images.
///   source  transformers, _checkpoint_conversion_mapping of gemma3, llava and mistral3: from the
///           second form to the third
struct FolderNames {
  std::string_view model, head;
  std::vector<std::string_view> image_parts;
};
const std::vector<FolderNames>& folder_names() {
  static const std::vector<FolderNames> kNames{
      {"model.", "lm_head.", {}},
      {"language_model.model.",
       "language_model.lm_head.",
       {"vision_tower.", "multi_modal_projector."}},
      {"model.language_model.",
       "lm_head.",
       {"model.vision_tower.", "model.multi_modal_projector."}},
  };
  return kNames;
}

/// The rotary settings of a GGUF file as a Hugging Face rope_scaling object.
///   source  llama.cpp: a factor without a type is linear, 0 is none; older files call it
///           rope.scale_linear
json::value gguf_rope_scaling(const GgufMetadata& m, const std::string& arch) {
  const auto type = m.find<std::string_view>(arch + ".rope.scaling.type");
  auto factor = m.find<float>(arch + ".rope.scaling.factor");
  if (!factor) factor = m.find<float>(arch + ".rope.scale_linear");
  if (type ? *type == "none" : factor.value_or(0) == 0) return nullptr;
  json::object scaling{{"rope_type", type.value_or("linear")}};
  if (factor) scaling["factor"] = *factor;
  if (auto original = m.find<int64_t>(arch + ".rope.scaling.original_context_length")) {
    scaling["original_max_position_embeddings"] = *original;
  }
  if (auto scale = m.find<float>(arch + ".rope.scaling.attn_factor")) {
    scaling["attention_factor"] = *scale;
  }
  return scaling;
}

/// Queries of Gemma 3 are divided by the root of this, which its GGUF files do not state.
///   source  llama.cpp, which knows the 27B by its layers; Gemma 3's configs
std::optional<int64_t> gemma3_query_scalar(const GgufMetadata& m) {
  const auto width = m.find<int64_t>("gemma3.embedding_length");
  const auto heads = m.find<int64_t>("gemma3.attention.head_count");
  const bool is_27b = m.find<int64_t>("gemma3.block_count") == 62;
  if (is_27b && width && heads && *heads > 0) return *width / *heads;
  return m.find<int64_t>("gemma3.attention.key_length");
}

/// Translates the metadata of a GGUF file into a Hugging Face config.
json::object gguf_config(const GgufMetadata& m) {
  const auto arch = std::string(m.get<std::string_view>("general.architecture"));
  json::object config{{"model_type", arch == "gemma3" ? "gemma3_text" : arch}};
  const auto integer = [&](const char* key, const std::string& stored) {
    if (const auto value = m.find<int64_t>(arch + "." + stored)) config[key] = *value;
  };
  const auto number = [&](const char* key, const std::string& stored) {
    if (const auto value = m.find<float>(arch + "." + stored)) config[key] = *value;
  };
  integer("hidden_size", "embedding_length");
  integer("num_hidden_layers", "block_count");
  integer("intermediate_size", "feed_forward_length");
  integer("num_attention_heads", "attention.head_count");
  integer("num_key_value_heads", "attention.head_count_kv");
  integer("head_dim", "attention.key_length");
  integer("max_position_embeddings", "context_length");
  integer("sliding_window", "attention.sliding_window");
  number("rms_norm_eps", "attention.layer_norm_rms_epsilon");
  number("rope_theta", "rope.freq_base");
  config["vocab_size"] = m.get<std::vector<std::string_view>>("tokenizer.ggml.tokens").size();
  config["rope_scaling"] = gguf_rope_scaling(m, arch);
  if (const auto dims = m.find<int64_t>(arch + ".rope.dimension_count")) {
    const auto head_dim = m.find<int64_t>(arch + ".attention.key_length");
    const auto width = m.find<int64_t>(arch + ".embedding_length");
    const auto heads = m.find<int64_t>(arch + ".attention.head_count");
    const int64_t channels = head_dim                       ? *head_dim
                             : width && heads && *heads > 0 ? *width / *heads
                                                            : 0;
    if (channels > 0) {
      config["partial_rotary_factor"] = static_cast<double>(*dims) / static_cast<double>(channels);
    }
  }
  if (arch == "gemma3") {
    // The file states the global rope only; local layers and the query scale are Gemma 3's own.
    config["rope_local_base_freq"] = 10000.0;
    if (const auto scalar = gemma3_query_scalar(m)) config["query_pre_attn_scalar"] = *scalar;
  }
  return config;
}

}  // namespace

Source::Source(const Checkpoint& opened) : checkpoint(opened) {
  if (opened.gguf) {
    gguf = true;
    config = gguf_config(opened.gguf->index.metadata);
  } else {
    config = opened.config;
    // A multimodal wrapper keeps its language model's settings in text_config.
    if (const json::value* text = config.if_contains("text_config"); text && text->is_object()) {
      json::object lifted = text->get_object();
      for (const auto& [key, value] : config) {
        if (!lifted.contains(key)) lifted[key] = value;
      }
      config = std::move(lifted);
    }
    for (const FolderNames& names : folder_names()) {
      if (opened.find(std::string(names.model) + "embed_tokens.weight") == nullptr) continue;
      model_prefix = names.model;
      head_prefix = names.head;
      for (std::string_view part : names.image_parts) {
        const auto is_of = [part](const TensorView& tensor) {
          return tensor.name.starts_with(part);
        };
        if (std::ranges::any_of(opened.tensors, is_of)) image_parts.emplace_back(part);
      }
      break;
    }
  }
  const json::value* type = config.if_contains("model_type");
  if (type == nullptr || !type->is_string()) {
    fail(ErrorKind::kInvalidRequest, "{}: config has no \"model_type\"", opened.path);
  }
  family = type->get_string().c_str();
  adjacent_rope_pairs = gguf && family == "llama";
  norms_include_one = gguf && family == "gemma3_text";
}

std::string Source::tensor_name(const std::string& published) const {
  if (gguf) return gguf_name(published, family == "gemma3_text");
  constexpr std::string_view kModel = "model.", kHead = "lm_head.";
  if (published.starts_with(kModel)) return model_prefix + published.substr(kModel.size());
  if (published.starts_with(kHead)) return head_prefix + published.substr(kHead.size());
  return published;
}

bool Source::is_for_images(std::string_view stored) const {
  return std::ranges::any_of(
      image_parts, [stored](const std::string& part) { return stored.starts_with(part); });
}

TensorType Source::weight_type() const {
  if (gguf) return TensorType::kF32;
  for (const char* name : {"model.embed_tokens.scales", "model.embed_tokens.weight"}) {
    if (const TensorView* view = checkpoint.find(tensor_name(name))) return view->type;
  }
  return TensorType::kF32;
}

}  // namespace cohort::model
