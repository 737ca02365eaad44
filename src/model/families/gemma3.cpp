// Gemma 3 (text).
//   source  transformers models/gemma3; mlx-lm models/gemma3_text.py; GGUF architecture "gemma3"

#include <cmath>

#include "base/error.h"
#include "model/decoder.h"
#include "model/rope_config.h"

namespace cohort::model::families {
namespace {

constexpr size_t kGlobalRope = 0, kLocalRope = 1;

/// What the config of a folder may leave out: published wrappers do so with all that is as here.
///   source  transformers models/gemma3/configuration_gemma3.py, Gemma3TextConfig
const boost::json::object& defaults() {
  static const boost::json::object kDefaults{
      {"vocab_size", 262208},
      {"hidden_size", 2304},
      {"intermediate_size", 9216},
      {"num_hidden_layers", 26},
      {"num_attention_heads", 8},
      {"num_key_value_heads", 4},
      {"head_dim", 256},
      {"max_position_embeddings", 131072},
      {"rms_norm_eps", 1e-6},
      {"query_pre_attn_scalar", 256},
      {"sliding_window", 4096},
      {"rope_theta", 1e6},
      {"rope_local_base_freq", 1e4},
  };
  return kDefaults;
}

bool is_global(const boost::json::array* types, int64_t pattern, size_t layer) {
  if (types != nullptr) return (*types)[layer] == "full_attention";
  return static_cast<int64_t>(layer) % pattern == pattern - 1;
}

/// sqrt(hidden) rounded to the type of the weights, as the model multiplies it.
float embedding_scale(int hidden, TensorType type) {
  const float scale = std::sqrt(static_cast<float>(hidden));
  if (type == TensorType::kF16) return kernels::cpu::f16_to_f32(kernels::cpu::f32_to_f16(scale));
  if (type == TensorType::kBF16) return kernels::cpu::bf16_to_f32(kernels::cpu::f32_to_bf16(scale));
  return scale;
}

void set_layers(DecoderSpec& spec, const ConfigReader& config, const Source& source) {
  const int64_t window = config.integer("sliding_window", {1, 1 << 28});
  const int64_t pattern = config.integer("sliding_window_pattern", {1, 4096},
                                         config.integer("_sliding_window_pattern", {1, 4096}, 6));
  const boost::json::array* types = read_layer_types(config, source, spec.shape.layers.size());
  for (size_t i = 0; i < spec.shape.layers.size(); ++i) {
    const bool global = is_global(types, pattern, i);
    spec.layer_rope[i] = global ? kGlobalRope : kLocalRope;
    if (!global) spec.kv(i).window = window;
  }
}

/// Both published forms: rope_parameters by layer kind, or rope_theta, rope_local_base_freq and a
/// rope_scaling that holds for the global layers only.
void set_ropes(DecoderSpec& spec, const ConfigReader& config, const Source& source) {
  const int dim = spec.kv(0).head_dim;
  const int64_t context = spec.shape.context_tokens;
  const double global_theta = config.positive("rope_theta");
  const double local_theta = config.positive("rope_local_base_freq");
  const boost::json::object* global = config.object("rope_scaling");
  const boost::json::object* local = nullptr;
  if (const boost::json::object* kinds = config.object("rope_parameters")) {
    const ConfigReader by_kind(*kinds, source.checkpoint.path + ": rope_parameters");
    global = by_kind.object("full_attention");
    local = by_kind.object("sliding_attention");
  }
  spec.ropes.push_back(make_rope(global, global_theta, source, context, dim));
  spec.ropes.push_back(make_rope(local, local_theta, source, context, dim));
}

}  // namespace

DecoderSpec gemma3(const Source& source) {
  // A GGUF file states its own sizes: one that does not is not whole.
  const ConfigReader config(source.config, source.checkpoint.path,
                            source.gguf ? nullptr : &defaults());
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    const boost::json::value* value = source.config.if_contains(key);
    if (value != nullptr && !value->is_null()) {
      fail(ErrorKind::kUnsupported, "{}: \"{}\" is not part of Gemma 3", source.checkpoint.path,
           key);
    }
  }
  config.only("hidden_activation", "gelu_pytorch_tanh");
  DecoderSpec spec = read_decoder_spec(config, source);
  const int dim = spec.kv(0).head_dim;
  spec.query_scale = static_cast<float>(
      1.0 / std::sqrt(config.positive("query_pre_attn_scalar", static_cast<double>(dim))));
  spec.norm_offset = source.norms_include_one ? 0.0f : 1.0f;
  spec.activation = kernels::cpu::Activation::kGeluTanh;
  spec.qk_norm = spec.sandwich_norms = true;
  spec.embedding_scale = embedding_scale(spec.shape.hidden_size, source.weight_type());
  set_layers(spec, config, source);
  set_ropes(spec, config, source);
  return spec;
}

}  // namespace cohort::model::families
