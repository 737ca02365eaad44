#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "model/quantization.h"
#include "model/source.h"

namespace cohort::model {

/// The weights of one model. Addresses stay valid for its life.
struct WeightStore {
  kernels::cpu::WeightArena arena;
  std::deque<kernels::cpu::PackedMatrix> matrices;
  std::deque<std::vector<float>> vectors;
};

/// Row r of a matrix of `heads` heads is stored at another place: GGUF files of the llama
/// architecture keep rotary pairs side by side.
struct RowOrder {
  int adjacent_pair_heads = 0;  // 0 = as stored
};

/// MODULE.bias, a float for each of its outputs.
struct Bias {
  std::string module;
  int size;
  RowOrder order = {};
};

/// Takes tensors out of a checkpoint by published name and packs them for the kernels. Problems are
/// collected; `finish` reports them all at once.
///   thread  any, one at a time
class Weights {
 public:
  Weights(const Source& source, kernels::cpu::Cpu& cpu);

  /// MODULE.weight [rows, cols], dense, MLX-quantized (MODULE.scales) or in a GGUF block format.
  ///   returns  never null; without data if the tensor is missing or misshapen (finish says so)
  const kernels::cpu::PackedMatrix* matrix(const std::string& module, int rows, int cols,
                                           RowOrder order = {});
  /// A float tensor of `size` elements, plus `offset`; null if it is missing (finish says so).
  const float* vector(const std::string& name, int size, float offset = 0, RowOrder order = {});
  bool has(const std::string& name) const;
  /// The biases of modules end to end; null if the model has none of them.
  ///   stated  whether the config of a folder says that it has; of a GGUF file, what is there
  ///   counts
  const float* biases(bool stated, const std::vector<Bias>& biases);
  /// Tensors whose stored name ends like this are not asked for and are no error.
  void ignore(const std::string& ending) { ignored_.push_back(ending); }
  /// Nor are those of a module.
  void ignore_module(const std::string& module) {
    for (const char* kind : {".weight", ".scales", ".biases"}) {
      used_.insert(source_.tensor_name(module + kind));
    }
  }

  /// Gives the weights away: call once, last.
  ///   throws  Error{kInvalidRequest} listing every missing, misshapen and unused tensor
  WeightStore finish();

 private:
  const TensorView* take(const std::string& name, const std::vector<int64_t>& shape);
  kernels::cpu::PackedMatrix pack_affine(const std::string& module, int rows, int cols,
                                         RowOrder order);
  kernels::cpu::PackedMatrix pack(const TensorView& tensor, int rows, int cols, RowOrder order);

  const Source& source_;
  kernels::cpu::Cpu& cpu_;
  QuantizationConfig quantization_;
  WeightStore store_;
  std::set<std::string> used_;
  std::vector<std::string> missing_, wrong_, ignored_;
};

}  // namespace cohort::model
