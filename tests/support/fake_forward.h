#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "engine/forward.h"
#include "kernels/cpu/kv_block.h"

namespace cohort::test {

/// A model without weights whose every answer depends on every token before it: a forward stores
/// its tokens in real caches, and the next token is a hash of what each layer then sees. A token
/// that is lost, repeated or out of place changes all that follow.
class FakeForward final : public engine::Forward {
 public:
  using Layers = std::vector<kv::AnyLayerSpec>;
  static constexpr int32_t kSpan = 100;  // ids [100 n, 100 n + 100) belong to request n
  static constexpr int32_t kVocab = 3000;
  /// A layer with attention, which stores tokens as its keys, as they are.
  static constexpr kv::LayerSpec kAttention{.kv_heads = 1, .head_dim = 16};
  /// A layer with a recurrence: a hash of whole blocks, of which the last tokens and those of the
  /// open block are not yet part.
  static constexpr kv::RecurrentSpec kRecurrent{.conv_channels = 1,
                                                .conv_tokens = 3,
                                                .heads = 1,
                                                .key_dim = 1,
                                                .value_dim = 4,
                                                .open_width = 1};

  /// Layers of the specs above, or of attention with a window.
  explicit FakeForward(Layers layers = FakeForward::layers()) : layers_(std::move(layers)) {}

  static Layers layers() { return {kAttention}; }
  static kv::RowPrecision precision(size_t layers = 1) {
    const auto dense = kernels::cpu::dense_kv(false);
    return kv::RowPrecision(layers, {dense, dense, 0});
  }
  static size_t block_bytes() { return kAttention.geometry(precision()[0].then).block_bytes(); }

  /// What follows on `ids`, which belong to one request.
  static int32_t next(std::span<const int32_t> ids, const Layers& layers = FakeForward::layers()) {
    uint64_t sum = 0;
    for (const kv::AnyLayerSpec& layer : layers) {
      uint64_t hash = 0;
      for (const int32_t id : ids.last(seen(layer, ids.size()))) hash = fold(hash, id);
      sum += hash >> 40;
    }
    return answer(ids.back(), sum);
  }
  /// The prompt of request `number`.
  static std::vector<int32_t> prompt(int32_t number, int64_t tokens) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(number * kSpan + static_cast<int32_t>(i * 7 % kSpan));
    }
    return ids;
  }
  static int32_t request_of(int32_t id) { return id / kSpan; }

  /// May throw.
  std::function<void()> on_begin;
  /// Called with every pack; may throw.
  std::function<void(std::span<const model::TokenGroup>)> on_run;
  /// Called with the last id of what a row holds and its logits.
  std::function<void(int32_t id, std::span<float> logits)> on_logits;
  int forwards = 0;
  int releases = 0;

  void begin() override {
    if (on_begin) on_begin();
  }
  std::span<float> run(std::span<const model::TokenGroup> groups,
                       std::span<const size_t> samples) override {
    ++forwards;
    if (groups.empty()) throw std::logic_error("a forward without tokens");
    for (const model::TokenGroup& group : groups) write(group);
    if (on_run) on_run(groups);
    logits_.assign(samples.size() * kVocab, 0);
    for (size_t i = 0; i < samples.size(); ++i) {
      const model::TokenGroup& group = groups[samples[i]];
      const std::span<float> row(logits_.data() + i * kVocab, kVocab);
      row[static_cast<size_t>(answer(group.ids.back(), read(group)))] = 10;
      if (on_logits) on_logits(group.ids.back(), row);
    }
    return logits_;
  }
  const engine::ForwardTimes& times() const override { return times_; }
  void release_memory() override { ++releases; }

 private:
  static uint64_t fold(uint64_t hash, int32_t id) {
    return (hash ^ static_cast<uint64_t>(id)) * 0x9e3779b97f4a7c15u + 1;
  }
  static int32_t answer(int32_t last, uint64_t sum) {
    return last / kSpan * kSpan + static_cast<int32_t>(sum % kSpan);
  }
  /// How many of the last of `tokens` a layer sees.
  static size_t seen(const kv::AnyLayerSpec& layer, size_t tokens) {
    const auto* attention = std::get_if<kv::LayerSpec>(&layer);
    const bool all = attention == nullptr || attention->window == 0;
    return all ? tokens : std::min(tokens, static_cast<size_t>(attention->window));
  }

  void write(const model::TokenGroup& group) const {
    if (group.ids.empty()) throw std::logic_error("a group without tokens");
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (std::holds_alternative<kv::LayerSpec>(layers_[i])) {
        write(group, group.cache.attention(i));
      } else {
        write(group, static_cast<kv::RecurrentCache&>(group.cache.layer(i)));
      }
    }
  }
  /// The sum of the hashes of what its layers see.
  uint64_t read(const model::TokenGroup& group) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const bool attends = std::holds_alternative<kv::LayerSpec>(layers_[i]);
      sum += (attends ? read(group, group.cache.attention(i))
                      : read(static_cast<kv::RecurrentCache&>(group.cache.layer(i)))) >>
             40;
    }
    return sum;
  }

  static void write(const model::TokenGroup& group, const kv::AttentionCache& cache) {
    const kernels::cpu::KvView view = cache.view();
    for (size_t i = 0; i < group.ids.size(); ++i) {
      const auto at = static_cast<size_t>(cache.offset()) + i;
      const std::vector<float> x(16, static_cast<float>(group.ids[i]));
      store_kv(cache.geometry(), view.blocks[at / 64], 0, static_cast<int>(at % 64), x.data(),
               x.data());
    }
  }
  static uint64_t read(const model::TokenGroup& group, const kv::AttentionCache& cache) {
    const kernels::cpu::KvView view = cache.view();
    const auto end = static_cast<size_t>(cache.offset()) + group.ids.size();
    uint64_t hash = 0;
    for (size_t at = end - seen(cache.spec(), end); at < end; ++at) {
      float key[16], value[16];
      load_kv(cache.geometry(), view.blocks[at / 64], 0, static_cast<int>(at % 64), key, value);
      hash = fold(hash, static_cast<int32_t>(key[0]));
    }
    return hash;
  }

  // `conv` holds the last tokens, `open` those that left it since the block began, as id + 1 or
  // 0 for none; `state` the hash of all before, 16 bits a float.
  static void write(const model::TokenGroup& group, kv::RecurrentCache& cache) {
    kv::RecurrentState now = cache.current();
    for (size_t i = 0; i < group.ids.size(); ++i) {
      now.open.push_back(now.conv.front());
      std::shift_left(now.conv.begin(), now.conv.end(), 1);
      now.conv.back() = static_cast<float>(group.ids[i] + 1);
      if ((static_cast<size_t>(cache.offset()) + i + 1) % 64 != 0) continue;
      uint64_t hash = fold_all(whole(now), now.open);
      for (float& part : now.state) {
        part = static_cast<float>(hash & 0xffff);
        hash >>= 16;
      }
      now.open.clear();
    }
    if (now.open.size() != cache.next().open.size()) throw std::logic_error("an open block");
    cache.next() = std::move(now);
  }
  static uint64_t read(kv::RecurrentCache& cache) {
    const kv::RecurrentState& now = cache.next();
    return fold_all(fold_all(whole(now), now.open), now.conv);
  }
  static uint64_t whole(const kv::RecurrentState& now) {
    uint64_t hash = 0;
    for (size_t i = now.state.size(); i-- > 0;) {
      hash = hash << 16 | static_cast<uint64_t>(now.state[i]);
    }
    return hash;
  }
  static uint64_t fold_all(uint64_t hash, const std::vector<float>& tokens) {
    for (const float token : tokens) {
      if (token > 0) hash = fold(hash, static_cast<int32_t>(token) - 1);
    }
    return hash;
  }

  const Layers layers_;
  std::vector<float> logits_;
  engine::ForwardTimes times_;
};

}  // namespace cohort::test
