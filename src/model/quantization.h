#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "model/tensor_view.h"

namespace cohort::model {

/// How MLX packed one weight matrix: `value = scale * q + bias` per group of the innermost
/// dimension.
struct Quantization {
  int group_size = 64;  // 32, 64 or 128 inputs share a scale and a bias
  int bits = 4;         // 2, 3, 4, 5, 6 or 8
  bool operator==(const Quantization&) const = default;
};

/// The `quantization` (or `quantization_config`) object of an MLX config.json: one setting for all
/// modules, and exceptions by module path.
///   source  mlx-lm utils.py (load_model) and mlx nn.quantize: what the keys mean
class QuantizationConfig {
 public:
  /// What the config says about one module.
  struct Setting {
    Quantization affine;
    std::string mode = "affine";
    bool dense = false;  // the module is excepted from quantization
  };

  /// Without a config: nothing is known about any module.
  QuantizationConfig() = default;

  /// Reads the setting from a whole config.json.
  ///   file    its name, for errors
  ///   throws  Error{kInvalidRequest} for values that no MLX version writes; kUnsupported for the
  ///           quantization methods of other tools, by name
  static QuantizationConfig parse(const boost::json::object& config, std::string_view file);

  /// The setting for all modules; nullopt if the config has none.
  const std::optional<Setting>& global() const { return global_; }
  /// The exception for this module (path without ".weight"), or nullptr. Publishers write paths
  /// with and without the "language_model." of a wrapper; both match.
  const Setting* exception(std::string_view module) const;
  /// The exception for this module, or else what holds for all.
  Setting setting(std::string_view module) const;
  /// Refuses modules that are packed in another mode.
  ///   throws  Error{kUnsupported} naming MODULE.weight and the mode
  void require_affine(std::string_view module) const;

 private:
  std::optional<Setting> global_;
  std::map<std::string, Setting, std::less<>> exceptions_;  // keys without "language_model."
};

/// Decides how a module's tensors are packed and checks that their shapes agree with each other.
///   module       its path; the tensors are MODULE.weight, MODULE.scales, MODULE.biases
///   weight       [..., out, in * bits / 32] U32, bits packed from the least significant one
///   scales       [..., out, in / group_size] F32, F16 or BF16
///   biases       like scales; nullptr if the checkpoint has none (an error in affine mode)
///   in_features  the module's inputs if the caller knows them, else 0. Known, they decide together
///                with the shapes. Unknown, group_size comes from the config (64 without one) and
///                bits from the shapes.
///   throws       Error{kInvalidRequest} naming the tensor and both shapes; kUnsupported naming the
///                mode if it is not affine
Quantization quantization_of(const QuantizationConfig& config, std::string_view module,
                             const TensorView& weight, const TensorView& scales,
                             const TensorView* biases, int64_t in_features = 0);

}  // namespace cohort::model
