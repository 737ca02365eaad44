#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "model/config_reader.h"
#include "model/model.h"
#include "model/weights.h"
#include "nn/rope.h"

namespace cohort::model {

/// What differs between the plain decoder-only families; a family's file fills it in.
struct DecoderSpec {
  ModelShape shape;
  int heads = 0;
  int intermediate_size = 0;
  float norm_eps = 1e-6f;
  float norm_offset = 0;  // added to every stored norm weight
  float query_scale = 0;  // of q . k
  float embedding_scale = 1;
  kernels::cpu::Activation activation = kernels::cpu::Activation::kSilu;
  bool attention_bias = false;  // as a folder states; a GGUF file has biases or has not
  bool mlp_bias = false;
  bool qk_norm = false;         // per-head norms of queries and keys
  bool sandwich_norms = false;  // Gemma: norms after attention and after the MLP too
  std::vector<nn::Rope> ropes;
  std::vector<size_t> layer_rope;  // per layer, index into ropes

  /// What the attention of a layer keeps.
  kv::LayerSpec& kv(size_t layer) { return std::get<kv::LayerSpec>(shape.layers[layer]); }
};

/// A pre-norm decoder-only transformer: embeddings, layers, norm, head.
class Decoder : public Model {
 public:
  Decoder(DecoderSpec spec, const Source& source, const LoadOptions& options,
          kernels::cpu::Cpu& cpu);

  const ModelShape& shape() const override { return spec_.shape; }
  mx::array forward(std::span<const TokenGroup> groups,
                    std::vector<mx::array>* layer_outputs) override;
  mx::array project(const mx::array& hidden, std::vector<int32_t> rows) override;
  size_t weight_bytes() const override { return store_.arena.used_bytes(); }
  kernels::cpu::BlockCopy block_copy() override { return ops_->block_copy(); }

 private:
  void load_layer(Weights& weights, const Source& source, int layer, const LoadOptions& options);

  DecoderSpec spec_;
  WeightStore store_;
  const kernels::cpu::PackedMatrix* embedding_ = nullptr;
  std::vector<kernels::cpu::DecoderLayer> layers_;
  kernels::cpu::MatmulStep head_;
  std::unique_ptr<kernels::Ops> ops_;  // refers to the weights
};

/// Reads what all of these families share: sizes, eps, context, and layer geometry (no windows).
DecoderSpec read_decoder_spec(const ConfigReader& config, const Source& source);
/// The "layer_types" of the config, one per layer, each "full_attention" or "sliding_attention"; or
/// nullptr.
const boost::json::array* read_layer_types(const ConfigReader& config, const Source& source,
                                           size_t layers);
/// Reads one rotary object ("rope_parameters" or "rope_scaling" form; null = plain).
nn::RopeSettings read_rope(const boost::json::object* object, double theta, const Source& source,
                           int64_t context_tokens);

}  // namespace cohort::model
