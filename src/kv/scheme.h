#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/row_cache.h"

namespace cohort::kv {

/// An entry of kv_config.json.
struct LayerBits {
  int layer = 0;
  int bits = 0;
  int group = 0;
};

/// How a row's keys and values are to be stored, in the user's words.
struct KvScheme {
  enum class Kind { kOff, kUniform, kConfig, kTurbo };
  Kind kind = Kind::kOff;
  bool dense_bf16 = true;  // what is not quantized: bf16, else f32
  int bits = 8;            // kUniform: 4 or 8
  int group = 64;          // kUniform: channels that share a scale
  int key_bits = 8;        // kTurbo
  int value_bits = 3;
  std::vector<LayerBits> layers;  // kConfig; layers that are not named stay dense
  int64_t start = 0;              // tokens that stay dense until they are all there; 0 = none
  int turbo_skip_ends = 0;        // kTurbo: so many layers at each end stay dense

  /// Names what is stored: "bf16", "kv8-g64", "turbo-k8v3-start4096", ...
  std::string name() const;
};

/// Reads "off", "4", "8", "config" or "turbo[:kXvY]" into kind and bits; the rest of `scheme`
/// stays.
///   throws  Error{kInvalidRequest} with the forms that exist
void set_quantization(KvScheme& scheme, std::string_view words);

/// Reads the text of a kv_config.json: an array of {layer_idx, bits, group_size}.
///   throws  Error{kInvalidRequest} naming `file`, the entry and the key
std::vector<LayerBits> read_kv_config(std::string_view text, const std::string& file);

/// Why a model with these layers cannot have the scheme: the layer and its reason, or "".
std::string refusal(const KvScheme& scheme, const std::vector<AnyLayerSpec>& layers);

/// What the scheme means for each layer of a model. Turbo leaves layers with a window dense.
///   throws  Error{kUnsupported} naming the layer and why its encoding cannot be had
RowPrecision resolve(const KvScheme& scheme, const std::vector<AnyLayerSpec>& layers);

}  // namespace cohort::kv
