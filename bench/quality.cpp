// How far the default arithmetic (int8 activations, bf16 KV) is from --exact, on real text:
//   build/release/bench/quality MODEL TEXT_FILE...
// Prints one line of JSON: tokens, top1_agreement, mean_kl (of exact from default, nats).

#include <fmt/format.h>
#include <mlx/mlx.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "kernels/cpu/cpu.h"
#include "kv/scheme.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "serving/text_parts.h"

namespace cohort {
namespace {

namespace mx = mlx::core;
constexpr size_t kWindowTokens = 512;  // each window starts a new row

struct Difference {
  double kl = 0;
  size_t agreeing = 0;
};

/// Sum of KL(exact || other) and count of equal argmax over rows of logits.
Difference compare(const float* exact, const float* other, size_t rows, size_t vocab) {
  Difference total;
  for (size_t row = 0; row < rows; ++row, exact += vocab, other += vocab) {
    const auto log_sum = [&](const float* x, float top) {
      double sum = 0;
      for (size_t i = 0; i < vocab; ++i) sum += std::exp(double{x[i] - top});
      return top + std::log(sum);
    };
    const float* top_exact = std::max_element(exact, exact + vocab);
    const float* top_other = std::max_element(other, other + vocab);
    const double z_exact = log_sum(exact, *top_exact), z_other = log_sum(other, *top_other);
    for (size_t i = 0; i < vocab; ++i) {
      const double log_p = exact[i] - z_exact;
      total.kl += std::exp(log_p) * (log_p - (other[i] - z_other));
    }
    total.agreeing += top_exact - exact == top_other - other;
  }
  return total;
}

mx::array logits(model::Model& model, std::span<const int32_t> ids, bool exact) {
  kv::KvMemory memory(model.shape().layers);
  kv::RowCache cache = memory.new_row(kv::resolve({.dense_bf16 = !exact}, memory.layers()));
  const model::TokenGroup group{ids, cache};
  std::vector<int32_t> rows(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) rows[i] = static_cast<int32_t>(i);
  mx::array out = model.project(model.forward({&group, 1}, nullptr), std::move(rows));
  out.eval();
  return out;
}

int run(int argc, char** argv) {
  mx::set_default_device(mx::Device::cpu);
  kernels::cpu::Cpu cpu(0);
  const auto checkpoint = model::Checkpoint::open(argv[1]);
  const text::Tokenizer tokenizer = serving::load_tokenizer(checkpoint);
  const int32_t first = serving::leading_token(checkpoint, tokenizer);
  std::stringstream text;
  for (int i = 2; i < argc; ++i) text << std::ifstream(argv[i]).rdbuf();
  const std::vector<int32_t> ids = tokenizer.encode(text.str(), text::SpecialTokens::kAsText);
  const auto exact = model::load_model(checkpoint, {.exact = true}, cpu);
  const auto other = model::load_model(checkpoint, {}, cpu);
  const auto vocab = static_cast<size_t>(exact->shape().vocab_size);
  Difference total;
  size_t tokens = 0;
  for (size_t at = 0; at < ids.size(); at += kWindowTokens) {
    std::vector<int32_t> window;
    if (first >= 0) window.push_back(first);
    window.insert(window.end(), ids.begin() + static_cast<ptrdiff_t>(at),
                  ids.begin() + static_cast<ptrdiff_t>(std::min(ids.size(), at + kWindowTokens)));
    mx::array a = logits(*exact, window, true), b = logits(*other, window, false);
    const Difference d = compare(a.data<float>(), b.data<float>(), window.size(), vocab);
    total.kl += d.kl;
    total.agreeing += d.agreeing;
    tokens += window.size();
  }
  fmt::print(
      "{{\"model\": \"{}\", \"tokens\": {}, \"top1_agreement\": {:.4f}, \"mean_kl\": {:.5f}}}\n",
      argv[1], tokens, static_cast<double>(total.agreeing) / static_cast<double>(tokens),
      total.kl / static_cast<double>(tokens));
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: quality MODEL.gguf|FOLDER TEXT_FILE...\n");
    return 2;
  }
  return cohort::run(argc, argv);
}
