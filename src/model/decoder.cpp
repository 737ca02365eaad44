#include "model/decoder.h"

#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace cohort::model {

using kernels::cpu::Epilogue;

DecoderSpec read_decoder_spec(const ConfigReader& config, const Source& source) {
  DecoderSpec spec;
  spec.shape.family = source.family;
  spec.shape.vocab_size = static_cast<int>(config.integer("vocab_size", {1, 1 << 24}));
  spec.shape.hidden_size = static_cast<int>(config.integer("hidden_size", {1, 1 << 20}));
  spec.shape.context_tokens = config.integer("max_position_embeddings", {1, 1 << 28}, 2048);
  spec.intermediate_size = static_cast<int>(config.integer("intermediate_size", {1, 1 << 22}));
  spec.norm_eps = static_cast<float>(config.positive("rms_norm_eps", 1e-6));
  spec.attention_bias = config.boolean("attention_bias", false);
  spec.mlp_bias = config.boolean("mlp_bias", false);
  spec.heads = static_cast<int>(config.integer("num_attention_heads", {1, 4096}));
  const auto layers = config.integer("num_hidden_layers", {1, 4096});
  const auto kv_heads = config.integer("num_key_value_heads", {1, spec.heads}, spec.heads);
  const auto head_dim = config.integer("head_dim", {2, kernels::cpu::kMaxHeadDim},
                                       std::max(2, spec.shape.hidden_size / spec.heads));
  // The bound again: a dimension derived from hidden_size has not met it, and kernels rely on it.
  if (spec.heads % kv_heads != 0 || head_dim % 2 != 0 || head_dim > kernels::cpu::kMaxHeadDim) {
    fail(ErrorKind::kInvalidRequest,
         "{}: {} attention heads over {} kv heads of dimension {}: heads must be a multiple of kv "
         "heads and the dimension even, at most {}",
         source.checkpoint.path, spec.heads, kv_heads, head_dim, kernels::cpu::kMaxHeadDim);
  }
  if (const double share = config.positive("partial_rotary_factor", 1.0); share != 1) {
    fail(ErrorKind::kUnsupported, "{}: \"partial_rotary_factor\" is {}; supported: 1",
         source.checkpoint.path, share);
  }
  spec.shape.layers.assign(static_cast<size_t>(layers),
                           kv::LayerSpec{static_cast<int>(kv_heads), static_cast<int>(head_dim)});
  spec.layer_rope.assign(static_cast<size_t>(layers), 0);
  // What the steps of a layer hand on; beside it the residual stream: as embedded, between the
  // halves of a layer, and the outputs of layers in two places that take turns. Then what a step
  // makes of its input: normed and as integers, or of the widest as integers alone.
  const int64_t hidden = spec.shape.hidden_size, inner = spec.intermediate_size;
  const int64_t outputs =
      2 * (spec.heads + kv_heads) * head_dim + inner + 4 * hidden + std::max(2 * hidden, inner);
  spec.shape.attention_outputs = static_cast<int>(spec.heads * head_dim);
  spec.shape.working_bytes_per_token = static_cast<size_t>(outputs) * sizeof(float);
  return spec;
}

const boost::json::array* read_layer_types(const ConfigReader& config, const Source& source,
                                           size_t layers) {
  const boost::json::array* types = config.array("layer_types");
  if (types == nullptr) return nullptr;
  if (types->size() != layers) {
    fail(ErrorKind::kInvalidRequest, "{}: \"layer_types\" has {} entries for {} layers",
         source.checkpoint.path, types->size(), layers);
  }
  for (const boost::json::value& type : *types) {
    if (type == "full_attention" || type == "sliding_attention") continue;
    fail(ErrorKind::kUnsupported,
         "{}: \"layer_types\" holds {}; supported: full_attention, sliding_attention",
         source.checkpoint.path, printable(boost::json::serialize(type)));
  }
  return types;
}

nn::RopeSettings read_rope(const boost::json::object* object, double theta, const Source& source,
                           int64_t context_tokens) {
  nn::RopeSettings rope{.theta = theta};
  if (object == nullptr) return rope;
  const ConfigReader config(*object, source.checkpoint.path + ": rope settings");
  rope.type = config.text("rope_type", config.text("type", "default"));
  rope.theta = config.positive("rope_theta", theta);
  rope.factor = config.positive("factor", 1.0);
  rope.original_context =
      config.positive("original_max_position_embeddings", static_cast<double>(context_tokens));
  rope.low_freq_factor = config.positive("low_freq_factor", 1.0);
  rope.high_freq_factor = config.positive("high_freq_factor", 4.0);
  rope.beta_fast = config.positive("beta_fast", 32.0);
  rope.beta_slow = config.positive("beta_slow", 1.0);
  rope.truncate = config.boolean("truncate", true);
  if (object->contains("mscale")) rope.mscale = config.positive("mscale", 1.0);
  if (object->contains("mscale_all_dim"))
    rope.mscale_all_dim = config.positive("mscale_all_dim", 1.0);
  if (object->contains("attention_factor")) {
    rope.attention_factor = config.positive("attention_factor", 1.0);
  }
  return rope;
}

Decoder::Decoder(DecoderSpec spec, const Source& source, const LoadOptions& options,
                 kernels::cpu::Cpu& cpu)
    : spec_(std::move(spec)), ops_(kernels::make_ops(options.device, cpu)) {
  Weights weights(source, cpu);
  weights.ignore(".rotary_emb.inv_freq");
  const int hidden = spec_.shape.hidden_size, vocab = spec_.shape.vocab_size;
  embedding_ = weights.matrix("model.embed_tokens", vocab, hidden);
  for (int layer = 0; layer < static_cast<int>(spec_.shape.layers.size()); ++layer) {
    load_layer(weights, source, layer, options);
  }
  head_.norm = weights.vector("model.norm.weight", hidden, spec_.norm_offset);
  head_.norm_eps = spec_.norm_eps;
  head_.exact = options.exact;
  const bool tied = ConfigReader(source.config, source.checkpoint.path)
                        .boolean("tie_word_embeddings", !weights.has("lm_head.weight"));
  if (tied) weights.ignore_module("lm_head");
  head_.matrices = {tied ? embedding_ : weights.matrix("lm_head", vocab, hidden)};
  if (source.gguf) weights.ignore("rope_freqs.weight");  // read by the family
  store_ = weights.finish();
}

void Decoder::load_layer(Weights& weights, const Source& source, int layer,
                         const LoadOptions& options) {
  const std::string at = "model.layers." + std::to_string(layer) + ".";
  const kv::LayerSpec& kv = spec_.kv(static_cast<size_t>(layer));
  const int hidden = spec_.shape.hidden_size, dim = kv.head_dim;
  const int q_rows = spec_.heads * dim, kv_rows = kv.kv_heads * dim;
  const RowOrder q_order{source.adjacent_rope_pairs ? spec_.heads : 0};
  const RowOrder k_order{source.adjacent_rope_pairs ? kv.kv_heads : 0};
  const auto norm = [&](const char* name, int size) {
    return weights.vector(at + name + ".weight", size, spec_.norm_offset);
  };

  kernels::cpu::DecoderLayer loaded;
  loaded.qkv = {
      .norm = norm("input_layernorm", hidden),
      .norm_eps = spec_.norm_eps,
      .matrices = {weights.matrix(at + "self_attn.q_proj", q_rows, hidden, q_order),
                   weights.matrix(at + "self_attn.k_proj", kv_rows, hidden, k_order),
                   weights.matrix(at + "self_attn.v_proj", kv_rows, hidden)},
      .bias = weights.biases(spec_.attention_bias, {{at + "self_attn.q_proj", q_rows, q_order},
                                                    {at + "self_attn.k_proj", kv_rows, k_order},
                                                    {at + "self_attn.v_proj", kv_rows}}),
      .exact = options.exact};
  loaded.attention = {
      .heads = spec_.heads,
      .kv_heads = kv.kv_heads,
      .head_dim = dim,
      .scale = spec_.query_scale,
      .window = kv.window,
      .keep = kv.keep,
      .q_norm = spec_.qk_norm ? norm("self_attn.q_norm", dim) : nullptr,
      .k_norm = spec_.qk_norm ? norm("self_attn.k_norm", dim) : nullptr,
      .norm_eps = spec_.norm_eps,
      .rope_dims = spec_.ropes[spec_.layer_rope[static_cast<size_t>(layer)]].dims()};
  loaded.out = {
      .post_norm = spec_.sandwich_norms ? norm("post_attention_layernorm", hidden) : nullptr,
      .norm_eps = spec_.norm_eps,
      .matrices = {weights.matrix(at + "self_attn.o_proj", hidden, q_rows)},
      .bias = weights.biases(spec_.attention_bias, {{at + "self_attn.o_proj", hidden}}),
      .epilogue = Epilogue::kResidual,
      .exact = options.exact};
  const char* mlp_norm =
      spec_.sandwich_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  const int inner = spec_.intermediate_size;
  loaded.gate_up = {.norm = norm(mlp_norm, hidden),
                    .norm_eps = spec_.norm_eps,
                    .matrices = {weights.matrix(at + "mlp.gate_proj", inner, hidden),
                                 weights.matrix(at + "mlp.up_proj", inner, hidden)},
                    .bias = weights.biases(spec_.mlp_bias, {{at + "mlp.gate_proj", inner},
                                                            {at + "mlp.up_proj", inner}}),
                    .epilogue = Epilogue::kGated,
                    .activation = spec_.activation,
                    .exact = options.exact};
  loaded.down = {
      .post_norm = spec_.sandwich_norms ? norm("post_feedforward_layernorm", hidden) : nullptr,
      .norm_eps = spec_.norm_eps,
      .matrices = {weights.matrix(at + "mlp.down_proj", hidden, inner)},
      .bias = weights.biases(spec_.mlp_bias, {{at + "mlp.down_proj", hidden}}),
      .epilogue = Epilogue::kResidual,
      .exact = options.exact};
  layers_.push_back(std::move(loaded));
}

mx::array Decoder::forward(std::span<const TokenGroup> groups,
                           std::vector<mx::array>* layer_outputs) {
  std::vector<int32_t> ids;
  std::vector<int64_t> positions;
  for (const TokenGroup& group : groups) {
    group.cache.reserve(static_cast<int64_t>(group.ids.size()));
    ids.insert(ids.end(), group.ids.begin(), group.ids.end());
    for (size_t i = 0; i < group.ids.size(); ++i) {
      positions.push_back(group.cache.offset() + static_cast<int64_t>(i));
    }
  }
  std::vector<mx::array> tables;
  for (const nn::Rope& rope : spec_.ropes) tables.push_back(rope.table(positions));

  mx::array x = ops_->embed(*embedding_, std::move(ids), spec_.embedding_scale);
  if (layer_outputs != nullptr) layer_outputs->push_back(x);
  std::vector<kernels::LayerRun> runs;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    runs.push_back({&layers_[layer], {}, spec_.layer_rope[layer]});
    int token = 0;
    for (const TokenGroup& group : groups) {
      const auto count = static_cast<int>(group.ids.size());
      runs.back().rows.push_back(
          {token, count, group.cache.offset(), group.cache.attention(layer).view()});
      token += count;
    }
    if (layer_outputs == nullptr) continue;  // all layers as one
    x = ops_->layers(std::exchange(runs, {}), x, tables);
    layer_outputs->push_back(x);
  }
  return runs.empty() ? x : ops_->layers(std::move(runs), x, tables);
}

mx::array Decoder::project(const mx::array& hidden, std::vector<int32_t> rows) {
  return ops_->matmul(head_, ops_->select_rows(hidden, std::move(rows)), std::nullopt);
}

}  // namespace cohort::model
