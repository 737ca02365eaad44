#pragma once

#include <mlx/mlx.h>

#include <functional>
#include <span>
#include <vector>

namespace cohort::kernels {

namespace mx = mlx::core;

/// Work of a node on the CPU: inputs in order (row-contiguous), then the output to fill.
///   thread  MLX's stream thread; must not throw
using CpuBody = std::function<void(std::span<const void* const> inputs, void* out)>;

/// Makes a lazy MLX node that runs `body`. Inputs are made row-contiguous first; what `body`
/// captures must stay valid until the node has been evaluated.
///   throws  std::runtime_error on evaluation if the default device is not the CPU
mx::array cpu_node(const char* name, mx::Shape shape, mx::Dtype dtype,
                   std::vector<mx::array> inputs, CpuBody body);

}  // namespace cohort::kernels
