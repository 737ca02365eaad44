#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace cohort::test {

/// Normal deviates, the same for the same seed on every machine.
inline std::vector<float> random_floats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::vector<float> out(n);
  for (float& value : out) {
    float sum = 0;  // Irwin-Hall: std::normal_distribution differs between libraries
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(generator() >> 8) * 0x1p-24f;
    value = (sum - 6.0f) * scale;
  }
  return out;
}

inline std::vector<uint8_t> random_bytes(size_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> out(n);
  for (uint8_t& value : out) value = static_cast<uint8_t>(generator() >> 13);
  return out;
}

}  // namespace cohort::test
