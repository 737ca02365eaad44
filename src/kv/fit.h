#pragma once

#include "kv/scheme.h"

namespace cohort::kv {

/// Layers of one row that store their state alike.
struct LayerGroup {
  std::string signature;  // of their caches
  int layers = 0;
  size_t bytes_per_token = 0;  // of one of them, after its precision changed; 0 = fixed size
};

/// What a scheme stores.
struct SchemeSummary {
  std::string words;    // as --kv-quant takes them
  std::string refused;  // why the model cannot have it; then the rest is empty
  RowPrecision precision;
  std::vector<LayerGroup> groups;
  size_t bytes_per_token = 0;  // of all layers, windows not counted
};

/// Of the usual quantizations, everything else as `base` has it.
std::vector<SchemeSummary> summarize(const KvScheme& base, const std::vector<AnyLayerSpec>& layers);

/// In the order in which they first appear.
std::vector<LayerGroup> layer_groups(const RowPrecision& precision,
                                     const std::vector<AnyLayerSpec>& layers);

/// The most that a row which grows to `tokens` in chunks of at most `chunk` holds at any moment: in
/// whole blocks, before and while its precision changes, too.
size_t peak_bytes(const RowPrecision& precision, const std::vector<AnyLayerSpec>& layers,
                  int64_t tokens, int64_t chunk);

/// The longest row whose peak is within `bytes`, at most `most_tokens`.
int64_t tokens_that_fit(const RowPrecision& precision, const std::vector<AnyLayerSpec>& layers,
                        size_t bytes, int64_t most_tokens, int64_t chunk);

}  // namespace cohort::kv
