#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "model/model.h"

namespace cohort::test {

/// A model that counts: after token i comes i + 1. The hooks (engine thread) may do otherwise.
class ScriptedModel : public model::Model {
 public:
  explicit ScriptedModel(int vocab_size = 327) {
    shape_.family = "scripted";
    shape_.vocab_size = vocab_size;
    shape_.hidden_size = 1;
    shape_.context_tokens = 1 << 20;
    shape_.layers = {kv::LayerSpec{.kv_heads = 1, .head_dim = 16}};
  }

  /// Called with the pack of every forward; may throw.
  std::function<void(std::span<const model::TokenGroup>)> on_forward;
  /// Called with the output of every forward; may put nodes behind it.
  std::function<model::mx::array(std::span<const model::TokenGroup>, model::mx::array)> on_hidden;
  /// Called with the last token and the logits of each row that samples.
  std::function<void(int32_t token, std::span<float> logits)> on_logits;

  const model::ModelShape& shape() const override { return shape_; }

  model::mx::array forward(std::span<const model::TokenGroup> groups,
                           std::vector<model::mx::array>*) override {
    std::vector<float> ids;
    for (const model::TokenGroup& group : groups) {
      group.cache.reserve(static_cast<int64_t>(group.ids.size()));
      for (int32_t id : group.ids) ids.push_back(static_cast<float>(id));
    }
    if (on_forward) on_forward(groups);
    model::mx::array hidden(ids.begin(), {static_cast<int>(ids.size()), 1}, model::mx::float32);
    return on_hidden ? on_hidden(groups, std::move(hidden)) : hidden;
  }

  model::mx::array project(const model::mx::array& hidden, std::vector<int32_t> rows) override {
    model::mx::array in = hidden;
    in.eval();
    const auto vocab = static_cast<size_t>(shape_.vocab_size);
    std::vector<float> logits(rows.size() * vocab, 0.0f);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto token = static_cast<int32_t>(in.data<float>()[rows[i]]);
      const std::span<float> row(logits.data() + i * vocab, vocab);
      row[(static_cast<size_t>(token) + 1) % vocab] = 10;
      if (on_logits) on_logits(token, row);
    }
    return model::mx::array(logits.begin(), {static_cast<int>(rows.size()), shape_.vocab_size},
                            model::mx::float32);
  }

  size_t weight_bytes() const override { return 0; }

 private:
  model::ModelShape shape_;
};

}  // namespace cohort::test
