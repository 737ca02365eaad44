#pragma once

#include <algorithm>
#include <cstdlib>

namespace cohort::test {

/// How often a test of random cases draws new ones: once, or what COHORT_TEST_ROUNDS says.
inline uint32_t rounds() {
  const char* said = std::getenv("COHORT_TEST_ROUNDS");
  return static_cast<uint32_t>(std::max(1, said == nullptr ? 1 : std::atoi(said)));
}

}  // namespace cohort::test
