#pragma once

#include <string>

namespace cohort::model {
struct Checkpoint;
}

namespace cohort::serving {

struct BindingOptions;

/// All that must be equal for state that one server saved to be of use to another: weights, config,
/// tokenizer, how keys and values are stored, the arithmetic of the kernels, MLX, the device.
/// Weights count by their shapes and by samples of every tensor, so that a start need not read all
/// of a large file.
std::string state_identity(const model::Checkpoint& checkpoint, const BindingOptions& options);

}  // namespace cohort::serving
