#pragma once

#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "store/prefix_cache.h"
#include "tests/kv/filled_caches.h"

namespace cohort::store::test {

using Ids = std::vector<int32_t>;

/// Ids that begin like all others of that seed, and like none of another.
inline Ids some_ids(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Ids ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 1000);
  if (count > 0) ids.front() = static_cast<int32_t>(10000 + seed);
  return ids;
}

inline Ids operator+(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

inline Ids first(const Ids& ids, int64_t count) {
  return {ids.begin(), ids.begin() + count};
}

/// Everything that means something in a row.
inline std::vector<std::vector<std::byte>> image(const kv::RowCache& row) {
  std::vector<std::vector<std::byte>> images;
  for (size_t i = 0; i < row.layers(); ++i) images.push_back(kv::test::image(row.layer(i)));
  return images;
}

struct OwnBudget {
  Retention retention;
};

/// A prefix cache with a budget to itself.
struct PrefixCache : private OwnBudget, public store::PrefixCache {
  explicit PrefixCache(size_t budget_bytes)
      : OwnBudget{Retention(budget_bytes)}, store::PrefixCache(retention) {}
};

/// A model whose rows depend on every id.
struct PrefixModel : kv::test::TestModel {
  explicit PrefixModel(const std::vector<kv::test::LayerCase>& layers)
      : TestModel(specs(layers), precisions(layers), SIZE_MAX) {}
  static std::vector<kv::AnyLayerSpec> specs(const std::vector<kv::test::LayerCase>& layers) {
    std::vector<kv::AnyLayerSpec> found;
    for (const auto& layer : layers) found.push_back(layer.spec);
    return found;
  }
  static kv::RowPrecision precisions(const std::vector<kv::test::LayerCase>& layers) {
    kv::RowPrecision found;
    for (const auto& layer : layers) found.push_back(layer.precision);
    return found;
  }

  /// Feeds a row what it lacks of `ids`.
  void feed(kv::RowCache& row, std::span<const int32_t> ids) {
    while (row.offset() < static_cast<int64_t>(ids.size())) {
      const int32_t id = ids[static_cast<size_t>(row.offset())];
      kv::test::append(row, 1, cpu, static_cast<uint32_t>(id) * 4);
    }
  }
  kv::RowCache row_of(std::span<const int32_t> ids) {
    kv::RowCache made = row();
    feed(made, ids);
    return made;
  }
  void check(const store::PrefixCache& cache,
             std::initializer_list<const kv::RowCache*> rows = {}) {
    kv::BlockCensus census;
    cache.check_integrity(census);
    for (const kv::RowCache* each : rows) each->check_integrity(census);
    memory.pools().check_integrity(census);
  }
};

inline kv::test::LayerCase plain_layer() {
  const auto bf16 = kernels::cpu::dense_kv(true);
  return {kv::LayerSpec{1, 16}, {bf16, bf16, 0}};
}
inline kv::test::LayerCase window_layer() {
  const auto bf16 = kernels::cpu::dense_kv(true);
  return {kv::LayerSpec{1, 16, 70, 0}, {bf16, bf16, 0}};
}
inline kv::test::LayerCase delayed_layer() {
  return {kv::LayerSpec{1, 32}, {kernels::cpu::dense_kv(true), kernels::cpu::affine_kv(8, 32), 90}};
}
inline kv::test::LayerCase recurrent_layer() {
  return {kv::RecurrentSpec{5, 3, 2, 4, 6, 7}, {}};
}

using Layers = std::vector<kv::test::LayerCase>;

inline std::vector<std::pair<std::string, Layers>> models() {
  return {{"plain", {plain_layer(), plain_layer()}},
          {"window", {plain_layer(), window_layer()}},
          {"delayed", {delayed_layer(), plain_layer()}},
          {"recurrent", {plain_layer(), recurrent_layer()}},
          {"all", {plain_layer(), window_layer(), delayed_layer(), recurrent_layer()}}};
}

}  // namespace cohort::store::test
