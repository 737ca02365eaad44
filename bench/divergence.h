#pragma once

// What the programs that compare arithmetic on real text share.

#include <mlx/mlx.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kv/scheme.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "serving/text_parts.h"

namespace cohort::bench {

namespace mx = mlx::core;

/// Distance of next-token distributions from a reference, summed over positions.
struct Divergence {
  size_t tokens = 0;
  double kl = 0;        // sum of KL(reference || other), nats
  size_t agreeing = 0;  // equal likeliest tokens

  double mean_kl() const { return kl / static_cast<double>(tokens); }
  double top1() const { return static_cast<double>(agreeing) / static_cast<double>(tokens); }

  /// Adds the rows of two arrays [tokens, vocab].
  void add(const mx::array& reference, const mx::array& other) {
    const auto rows = static_cast<size_t>(reference.shape(0));
    const auto vocab = static_cast<size_t>(reference.shape(1));
    const float *a = reference.data<float>(), *b = other.data<float>();
    for (size_t row = 0; row < rows; ++row, a += vocab, b += vocab) {
      const auto log_sum = [&](const float* x, float top) {
        double sum = 0;
        for (size_t i = 0; i < vocab; ++i) sum += std::exp(double{x[i] - top});
        return top + std::log(sum);
      };
      const float* top_a = std::max_element(a, a + vocab);
      const float* top_b = std::max_element(b, b + vocab);
      const double z_a = log_sum(a, *top_a), z_b = log_sum(b, *top_b);
      for (size_t i = 0; i < vocab; ++i) {
        const double log_p = a[i] - z_a;
        kl += std::exp(log_p) * (log_p - (b[i] - z_b));
      }
      agreeing += top_a - a == top_b - b;
    }
    tokens += rows;
  }
};

/// Logits of all positions of one row, fed in one piece.   ->   [ids, vocab]
inline mx::array logits(model::Model& model, std::span<const int32_t> ids,
                        const kv::KvScheme& scheme) {
  kv::KvMemory memory(model.shape().layers);
  kv::RowCache cache = memory.new_row(kv::resolve(scheme, memory.layers()));
  const model::TokenGroup group{ids, cache};
  std::vector<int32_t> rows(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) rows[i] = static_cast<int32_t>(i);
  mx::array out = model.project(model.forward({&group, 1}, nullptr), std::move(rows));
  out.eval();
  return out;
}

/// The files' text as rows of `window` tokens, each beginning as the model's texts do.
inline std::vector<std::vector<int32_t>> windows(const model::Checkpoint& checkpoint, char** files,
                                                 int count, size_t window) {
  const text::Tokenizer tokenizer = serving::load_tokenizer(checkpoint);
  const std::vector<int32_t> first =
      serving::leading_tokens(checkpoint, tokenizer, tokenizer.vocab_size());
  std::stringstream text;
  for (int i = 0; i < count; ++i) text << std::ifstream(files[i]).rdbuf();
  const std::vector<int32_t> ids = tokenizer.encode(text.str(), text::SpecialTokens::kAsText);
  std::vector<std::vector<int32_t>> rows;
  for (size_t at = 0; at < ids.size(); at += window) {
    rows.push_back(first);
    const auto end = std::min(ids.size(), at + window);
    rows.back().insert(rows.back().end(), ids.begin() + static_cast<ptrdiff_t>(at),
                       ids.begin() + static_cast<ptrdiff_t>(end));
  }
  return rows;
}

}  // namespace cohort::bench
