// Llama and Mistral.
//   source  transformers models/llama, models/mistral; GGUF architecture "llama"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "model/decoder.h"
#include "model/rope_config.h"

namespace cohort::model::families {
namespace {

/// Layers listed as "sliding_attention" (or, for Mistral, all of them) see `sliding_window` keys.
void set_windows(DecoderSpec& spec, const ConfigReader& config, const Source& source) {
  const boost::json::array* types = read_layer_types(config, source, spec.shape.layers.size());
  const int64_t window = config.integer("sliding_window", {1, 1 << 28}, 0);
  for (size_t i = 0; i < spec.shape.layers.size(); ++i) {
    const bool sliding =
        types != nullptr ? (*types)[i] == "sliding_attention" : source.family == "mistral";
    if (!sliding) continue;
    if (window == 0 && types != nullptr) {
      fail(ErrorKind::kInvalidRequest,
           "{}: layer {} is \"sliding_attention\", but there is no \"sliding_window\"",
           source.checkpoint.path, i);
    }
    spec.kv(i).window = window;
  }
}

/// GGUF files state Llama 3's frequency correction as one factor per rotary pair.
std::vector<float> frequency_factors(const Source& source) {
  const TensorView* view = source.gguf ? source.checkpoint.find("rope_freqs.weight") : nullptr;
  if (view == nullptr) return {};
  if (view->type != TensorType::kF32) {
    fail_tensor(ErrorKind::kUnsupported, source.checkpoint.path, view->name,
                "type {}; supported: F32", info(view->type).name);
  }
  std::vector<float> factors(view->bytes.size() / sizeof(float));
  std::memcpy(factors.data(), view->bytes.data(), view->bytes.size());
  return factors;
}

}  // namespace

DecoderSpec llama(const Source& source) {
  const ConfigReader config(source.config, source.checkpoint.path);
  config.only("hidden_act", "silu");
  DecoderSpec spec = read_decoder_spec(config, source);
  const int dim = spec.kv(0).head_dim;
  spec.query_scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const boost::json::object* scaling = config.object("rope_parameters");
  if (scaling == nullptr) scaling = config.object("rope_scaling");
  const std::vector<float> factors = frequency_factors(source);
  if (!factors.empty() && factors.size() != static_cast<size_t>(dim) / 2) {
    fail(ErrorKind::kInvalidRequest, "{}: rope_freqs.weight has {} factors, must be {}",
         source.checkpoint.path, factors.size(), dim / 2);
  }
  spec.ropes.push_back(make_rope(scaling, config.positive("rope_theta", 10000.0), source,
                                 spec.shape.context_tokens, dim, factors));
  set_windows(spec, config, source);
  return spec;
}

}  // namespace cohort::model::families
