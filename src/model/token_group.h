#pragma once

#include <cstdint>
#include <span>

#include "kv/row_cache.h"

namespace cohort::model {

/// Tokens of one row that share a forward; the first stands at cache.offset().
struct TokenGroup {
  std::span<const int32_t> ids;
  kv::RowCache& cache;
};

}  // namespace cohort::model
