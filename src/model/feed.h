#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "model/model.h"

namespace cohort::model {

/// Feeds one row without an engine: the tokens `ids` behind what its cache holds, at most
/// `chunk_tokens` at a time and never across a change of precision, which is made when it is due.
///   forward  evaluates a forward of the group it is given; the group is committed after it
///   throws   what `forward` throws, and Error{kOverloaded} when a change finds no memory
void feed(kernels::cpu::Cpu& cpu, kv::RowCache& cache, std::span<const int32_t> ids,
          int64_t chunk_tokens, const std::function<void(const TokenGroup& group)>& forward);

}  // namespace cohort::model
