#pragma once

#include <cstddef>

#include "base/settings.h"

namespace cohort::kernels {

/// Whether rows keep their tokens in memory of this process, in any encoding; else densely and out
/// of reach of files.
bool has_host_blocks(Device device);

/// Throws Error{kInvalidRequest} if this program, or this machine, has no such device.
void require(Device device);

/// Makes MLX run on it.
///   thread  the one that calls MLX, before it does
void use(Device device);

/// Memory that is free now and could become blocks of rows.
size_t free_block_bytes(Device device);

}  // namespace cohort::kernels
