#pragma once

#include "tests/kv/filled_caches.h"
#include "tests/kv/records.h"

namespace cohort::kv::test {

/// A small model whose records the fuzzer changes.
struct FuzzedModel {
  std::string_view name;
  std::vector<LayerCase> layers;

  std::vector<AnyLayerSpec> specs() const {
    std::vector<AnyLayerSpec> found;
    for (const LayerCase& layer : layers) found.push_back(layer.spec);
    return found;
  }
  RowPrecision precision() const {
    RowPrecision found;
    for (const LayerCase& layer : layers) found.push_back(layer.precision);
    return found;
  }
};

/// One for each family of kinds, and one with a layer of each.
inline std::vector<FuzzedModel> fuzzed_models() {
  using namespace kernels::cpu;
  const KvEncoding bf16 = dense_kv(true), f32 = dense_kv(false), turbo = turbo_kv(4, 3);
  const LayerCase window{LayerSpec{1, 16, 20, 1}, {bf16, bf16, 0}};
  const LayerCase delayed{LayerSpec{1, 32}, {f32, affine_kv(8, 32), 32}};
  const LayerCase coded{LayerSpec{1, 64}, {turbo, turbo, 0}};
  const LayerCase recurrent{RecurrentSpec{3, 2, 1, 2, 3, 2}, {}};
  return {{"window", {window}},
          {"delayed", {delayed}},
          {"turboquant", {coded}},
          {"recurrent", {recurrent}},
          {"all", {window, delayed, coded, recurrent}}};
}

}  // namespace cohort::kv::test
