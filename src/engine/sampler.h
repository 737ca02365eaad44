#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/cpu/kernels.h"

namespace cohort::engine {

/// What the sampler of one row does; every value resolved.
struct SamplingParams {
  float temperature = 0.7f;  // below 1e-5: greedy, filters do not matter
  float top_p = 1;
  int32_t top_k = 0;
  float min_p = 0;
  float repetition_penalty = 1;  // over prompt and answer: logit / p if positive, else * p
  float presence_penalty = 0;    // over the answer: once per distinct token
  float frequency_penalty = 0;   // over the answer: per occurrence
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;
};

/// Logits to a token id, for one row. Randomness is a function of (seed, position) alone, so a row
/// draws the same numbers whoever its neighbours are. Never sorts the vocabulary.
///   order   bias, penalties; then on the untempered distribution top_p, min_p, top_k; then
///           temperature and the draw
///   source  mlx-lm sample_utils.py (order of the filters); OpenAI API reference and vLLM (what the
///           penalties range over)
///   thread  one (engine)
class Sampler {
 public:
  Sampler(SamplingParams params, std::span<const int32_t> prompt,
          const kernels::cpu::Kernels& kernels);

  /// Picks the token that will stand at `position` in the row. Changes `logits`.
  ///   throws  Error{kModelFailure} if no logit is finite
  int32_t sample(std::span<float> logits, int64_t position);
  /// Counts a token of the answer for the penalties.
  void accept(int32_t id);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  void adjust(std::span<float> logits) const;
  int32_t draw_from_all(std::span<const float> logits, float top, double uniform);
  int32_t draw_from_kept(std::span<const float> logits, float top, double uniform);
  void keep_top_p(float top);
  void keep_min_p(float top);
  void keep_top_k();

  const SamplingParams params_;
  const kernels::cpu::Kernels& kernels_;
  std::vector<int32_t> prompt_ids_;                // distinct, only with a repetition penalty
  std::unordered_map<int32_t, int32_t> answered_;  // id -> occurrences, only with a penalty
  std::vector<Candidate> kept_;                    // scratch
  std::vector<float> weights_;                     // scratch
};

/// Uniform in [0, 1): the random number that belongs to `position` under `seed`.
///   source  SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators")
double uniform_at(uint64_t seed, int64_t position);

}  // namespace cohort::engine
