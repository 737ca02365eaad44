#include "kv/fit.h"

#include <algorithm>

namespace cohort::kv {

using kernels::cpu::blocks_for;
using kernels::cpu::kBlockTokens;

namespace {

/// Bytes of one layer of a row of `tokens` in this encoding, at its peak.
size_t layer_bytes(const LayerSpec& spec, const kernels::cpu::KvEncoding& encoding, int64_t tokens,
                   int64_t chunk) {
  int64_t held = blocks_for(tokens);
  // A window gives blocks back after the chunk is written; it may begin in the middle of one.
  if (spec.window > 0) {
    held = std::min(held, blocks_for(spec.keep) + blocks_for(spec.window - 1 + chunk) + 1);
  }
  return spec.geometry(encoding).block_bytes() * static_cast<size_t>(held);
}

/// Bytes of a row of `tokens`, before or after its layers changed their precision.
size_t row_bytes(const RowPrecision& precision, const std::vector<AnyLayerSpec>& layers,
                 int64_t tokens, int64_t chunk, bool changed) {
  size_t bytes = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (const auto* spec = std::get_if<LayerSpec>(&layers[i])) {
      bytes += layer_bytes(*spec, precision[i].stored(changed), tokens, chunk);
    } else {
      const auto& recurrent = std::get<RecurrentSpec>(layers[i]);
      const size_t floats = recurrent.conv_floats() + recurrent.state_floats() +
                            recurrent.open_floats(kBlockTokens - 1);
      bytes += 2 * floats * sizeof(float);  // what is and what comes next
    }
  }
  return bytes;
}

}  // namespace

std::vector<LayerGroup> layer_groups(const RowPrecision& precision,
                                     const std::vector<AnyLayerSpec>& layers) {
  KvMemory memory(layers);
  const RowCache row = memory.new_row(precision);
  std::vector<LayerGroup> groups;
  for (size_t i = 0; i < row.layers(); ++i) {
    const std::string signature = row.layer(i).signature();
    const auto known = std::ranges::find(groups, signature, &LayerGroup::signature);
    if (known != groups.end()) {
      ++known->layers;
    } else {
      const auto* spec = std::get_if<LayerSpec>(&layers[i]);
      groups.push_back(
          {signature, 1, spec ? spec->geometry(precision[i].then).bytes_per_token() : 0});
    }
  }
  return groups;
}

std::vector<SchemeSummary> summarize(const KvScheme& base,
                                     const std::vector<AnyLayerSpec>& layers) {
  std::vector<SchemeSummary> summaries;
  for (const char* words :
       {"off", "8", "4", "config", "turbo:k8v8", "turbo:k8v4", "turbo:k8v3", "turbo:k4v3"}) {
    KvScheme scheme = base;
    set_quantization(scheme, words);
    SchemeSummary& summary = summaries.emplace_back();
    summary.words = words;
    summary.refused = refusal(scheme, layers);
    if (!summary.refused.empty()) continue;
    summary.precision = resolve(scheme, layers);
    summary.groups = layer_groups(summary.precision, layers);
    for (const LayerGroup& group : summary.groups) {
      summary.bytes_per_token += group.bytes_per_token * static_cast<size_t>(group.layers);
    }
  }
  return summaries;
}

size_t peak_bytes(const RowPrecision& precision, const std::vector<AnyLayerSpec>& layers,
                  int64_t tokens, int64_t chunk) {
  const auto changing = std::ranges::find_if(precision, &LayerPrecision::changes);
  if (changing == precision.end()) return row_bytes(precision, layers, tokens, chunk, true);
  const int64_t start = changing->start;
  if (tokens < start) return row_bytes(precision, layers, tokens, chunk, false);
  size_t held_twice = 0;  // layers change one after the other
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto* spec = std::get_if<LayerSpec>(&layers[i]);
    if (spec == nullptr || !precision[i].changes()) continue;
    held_twice = std::max(held_twice, layer_bytes(*spec, precision[i].then, start, chunk));
  }
  return std::max(row_bytes(precision, layers, start, chunk, false) + held_twice,
                  row_bytes(precision, layers, tokens, chunk, true));
}

int64_t tokens_that_fit(const RowPrecision& precision, const std::vector<AnyLayerSpec>& layers,
                        size_t bytes, int64_t most_tokens, int64_t chunk) {
  int64_t fits = 0, too_many = most_tokens + 1;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (peak_bytes(precision, layers, middle, chunk) <= bytes ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace cohort::kv
