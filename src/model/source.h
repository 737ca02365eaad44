#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"

namespace cohort::model {

/// A checkpoint in the one form that families read: a config with the key names of Hugging Face and
/// tensors under published names, whatever file they came from.
struct Source {
  explicit Source(const Checkpoint& opened);

  const Checkpoint& checkpoint;
  boost::json::object config;  // of the language model: text_config is lifted, GGUF translated
  std::string family;          // model_type
  // Of a folder: what stands for "model." and "lm_head.", and how the names of tensors that only
  // images need begin, if there are such.
  std::string model_prefix = "model.", head_prefix = "lm_head.";
  std::vector<std::string> image_parts;
  bool gguf = false;
  bool adjacent_rope_pairs = false;  // q and k rows are stored for rotation of (2i, 2i + 1)
  bool norms_include_one = false;    // Gemma 3: the stored norm weights are already w + 1

  /// The file's name for a published tensor name, such as "model.layers.0.self_attn.q_proj.weight".
  std::string tensor_name(const std::string& published) const;
  /// Whether only images need this tensor, by its name in the file.
  bool is_for_images(std::string_view stored) const;
  /// The type that activations had when the model was trained: that of its dense weights; F32 for
  /// GGUF, which does not say.
  TensorType weight_type() const;
};

}  // namespace cohort::model
