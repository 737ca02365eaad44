#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <vector>

#include "engine/forward.h"
#include "kernels/cpu/kv_block.h"

namespace cohort::test {

/// A model without weights whose every answer depends on every token before it: a forward stores
/// its tokens as keys of a real cache, and the next token is a hash of what the cache then holds. A
/// token that is lost, repeated or out of place changes all that follow.
class FakeForward final : public engine::Forward {
 public:
  static constexpr int32_t kSpan = 100;  // ids [100 n, 100 n + 100) belong to request n
  static constexpr int32_t kVocab = 3000;

  /// One layer, stored as it is.
  static std::vector<kv::AnyLayerSpec> layers() {
    return {kv::LayerSpec{.kv_heads = 1, .head_dim = 16}};
  }
  static kv::RowPrecision precision() {
    const auto dense = kernels::cpu::dense_kv(false);
    return {{dense, dense, 0}};
  }
  static size_t block_bytes() {
    return kv::LayerSpec{1, 16}.geometry(precision()[0].then).block_bytes();
  }

  /// What follows on `ids`.
  static int32_t next(const std::vector<int32_t>& ids) {
    uint64_t hash = 0;
    for (int32_t id : ids) hash = (hash ^ static_cast<uint64_t>(id)) * 0x9e3779b97f4a7c15u + 1;
    return ids.front() / kSpan * kSpan + static_cast<int32_t>((hash >> 40) % kSpan);
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

  /// Called with every pack; may throw.
  std::function<void(std::span<const model::TokenGroup>)> on_run;
  /// Called with the last id of what a row holds and its logits.
  std::function<void(int32_t id, std::span<float> logits)> on_logits;
  int forwards = 0;
  int releases = 0;

  std::span<float> run(std::span<const model::TokenGroup> groups,
                       std::span<const size_t> samples) override {
    ++forwards;
    if (groups.empty()) throw std::logic_error("a forward without tokens");
    for (const model::TokenGroup& group : groups) write(group);
    if (on_run) on_run(groups);
    logits_.assign(samples.size() * kVocab, 0);
    for (size_t i = 0; i < samples.size(); ++i) {
      const std::vector<int32_t> ids = read(groups[samples[i]]);
      const std::span<float> row(logits_.data() + i * kVocab, kVocab);
      row[static_cast<size_t>(next(ids))] = 10;
      if (on_logits) on_logits(ids.back(), row);
    }
    return logits_;
  }
  const engine::ForwardTimes& times() const override { return times_; }
  void release_memory() override { ++releases; }

 private:
  static void write(const model::TokenGroup& group) {
    if (group.ids.empty()) throw std::logic_error("a group without tokens");
    const kv::AttentionCache& cache = group.cache.attention(0);
    const kernels::cpu::KvView view = cache.view();
    for (size_t i = 0; i < group.ids.size(); ++i) {
      const auto at = static_cast<size_t>(group.cache.offset()) + i;
      const std::vector<float> x(16, static_cast<float>(group.ids[i]));
      store_kv(cache.geometry(), view.blocks[at / 64], 0, static_cast<int>(at % 64), x.data(),
               x.data());
    }
  }
  static std::vector<int32_t> read(const model::TokenGroup& group) {
    const kv::AttentionCache& cache = group.cache.attention(0);
    const kernels::cpu::KvView view = cache.view();
    std::vector<int32_t> ids;
    const auto end = static_cast<size_t>(group.cache.offset()) + group.ids.size();
    for (size_t at = 0; at < end; ++at) {
      float key[16], value[16];
      load_kv(cache.geometry(), view.blocks[at / 64], 0, static_cast<int>(at % 64), key, value);
      ids.push_back(static_cast<int32_t>(key[0]));
    }
    return ids;
  }

  std::vector<float> logits_;
  engine::ForwardTimes times_;
};

}  // namespace cohort::test
