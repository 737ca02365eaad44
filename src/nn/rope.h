#pragma once

#include <mlx/mlx.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cohort::nn {

namespace mx = mlx::core;

/// How rotary frequencies are derived, as a checkpoint states it.
struct RopeSettings {
  std::string type = "default";  // "default", "linear", "llama3" or "yarn"
  double theta = 10000;
  double factor = 1;
  double original_context = 0;                       // tokens the model was first trained on
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  double mscale = 0, mscale_all_dim = 0;             // yarn, 0 = absent
  double attention_factor = 0;                       // yarn, 0 = derived
  bool truncate = true;                              // yarn: whole-numbered correction range
};

/// Rotary position embedding over the first `dims` channels of a head, pairs (i, i + dims / 2).
///   source  Su et al., "RoFormer"; transformers modeling_rope_utils.py (llama3, yarn)
class Rope {
 public:
  Rope() = default;
  ///   dims     even
  ///   factors  divide the frequency of each pair (GGUF rope_freqs.weight); empty = none
  Rope(int dims, const RopeSettings& settings, std::span<const float> factors = {});

  int dims() const { return dims_; }
  /// cos[dims / 2], sin[dims / 2] per position, of the angle rounded to f32, as in transformers.
  ///   returns  [positions, dims]
  mx::array table(std::span<const int64_t> positions) const;

 private:
  int dims_ = 0;
  std::vector<float> inverse_frequencies_;
  float scale_ = 1;  // of cos and sin
};

}  // namespace cohort::nn
