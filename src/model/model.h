#pragma once

#include <mlx/mlx.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"
#include "kernels/cpu/cpu.h"
#include "kv/row_cache.h"
#include "model/token_group.h"

namespace cohort::model {

namespace mx = mlx::core;

struct Checkpoint;

/// What a loaded model is to those who use it.
struct ModelShape {
  std::string family;  // as in families.def
  int vocab_size = 0;
  int hidden_size = 0;
  int64_t context_tokens = 0;
  std::vector<kv::AnyLayerSpec> layers;
  int attention_outputs = 0;           // of a token: heads x head_dim, of the widest layer
  size_t working_bytes_per_token = 0;  // activations of a forward, for each token of its pack
};

/// A model's computation. Weights are its own; the state of rows is in their caches.
///   thread  engine
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelShape& shape() const = 0;

  /// Feeds every group's tokens in one pack.
  ///   layer_outputs  if not null, receives the embeddings and then the output of every layer
  ///   returns        the last layer's output [tokens, hidden], lazy, in the order of the groups
  ///   effect         reserves cache space now; writes K and V behind each cache's offset when
  ///                  evaluated. The caller commits, or repeats with the same tokens.
  virtual mx::array forward(std::span<const TokenGroup> groups,
                            std::vector<mx::array>* layer_outputs) = 0;
  /// Final norm and output head for some rows of a forward's result.
  ///   returns  logits [rows, vocab] f32, lazy
  virtual mx::array project(const mx::array& hidden, std::vector<int32_t> rows) = 0;
  /// Memory that the weights take.
  virtual size_t weight_bytes() const = 0;
  /// How the blocks of its rows are copied: for the one KvMemory that they come from.
  virtual kernels::cpu::BlockCopy block_copy() { return {}; }
};

struct LoadOptions {
  bool exact = false;  // f32 activations in every matmul
  Device device = Device::kCpu;
  /// Receives lines for the person who loads the model. Thread: that of load_model.
  std::function<void(std::string_view)> log = [](std::string_view) {};
};

/// What the model of a checkpoint would be; reads no weights.
///   throws  as load_model does for a bad config
ModelShape read_shape(const Checkpoint& checkpoint);
/// The memory that load_model would take for its weights; reads none of them.
///   throws  as load_model does for a bad config
size_t packed_bytes(const Checkpoint& checkpoint);

/// Builds the model of a checkpoint. Weights are repacked; the mapped file is not used afterwards.
/// Parts that only images need are left out, which one line to options.log says.
///   throws  Error{kInvalidRequest} for a bad config, or one error that lists every missing and
///           every unused tensor; kUnsupported naming the families that exist
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options,
                                  kernels::cpu::Cpu& cpu);

}  // namespace cohort::model
