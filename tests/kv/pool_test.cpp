#include "kv/block_pool.h"

#include <gtest/gtest.h>
namespace cohort::kv {
TEST(BlockPool, Placeholder) {}
}  // namespace cohort::kv
