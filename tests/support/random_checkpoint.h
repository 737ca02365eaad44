#pragma once

#include <deque>
#include <string>
#include <vector>

#include "model/checkpoint.h"

namespace cohort::test {

/// What a random model is made of: small, but with heads that every encoding of keys and values
/// can hold.
struct RandomModel {
  std::string family = "llama";  // as in families.def
  int head_dim = 64;
  int layers = 3;       // gemma3: a window of 100 tokens and none in turn
  int vocab = 40;       // tokens
  bool blocks = false;  // matrices in the block formats of GGUF files in turn, else f32
  uint32_t seed = 1;
};

/// The families that there are; a random model can be made of each.
std::vector<std::string> random_families();

/// A checkpoint of random weights, the same for the same RandomModel. Activations stay near 1, and
/// attention is neither even nor all on one key.
class RandomCheckpoint {
 public:
  ///   throws  Error{kInternal} for a family that nobody told the maker of
  explicit RandomCheckpoint(const RandomModel& model);

  const model::Checkpoint& opened() const { return opened_; }
  /// Makes the folder, with config.json and model.safetensors. Only for f32 matrices.
  void write(const std::string& folder) const;

 private:
  void add_layer(const std::string& at);
  void add_norm(const std::string& module, int size, float mean);
  void add_matrix(const std::string& module, int rows, int cols);
  void add_blocks(const std::string& module, int rows, int cols);
  void add(const std::string& module, model::TensorType type, std::vector<int64_t> shape,
           std::vector<std::byte> bytes);

  const RandomModel model_;
  model::Checkpoint opened_;
  std::deque<std::vector<std::byte>> storage_;
  uint32_t tensors_ = 0, matrices_ = 0;
};

}  // namespace cohort::test
