#include "base/random_hex.h"

#include <fmt/format.h>

#include <random>

namespace cohort {

std::string random_hex(size_t digits) {
  std::random_device random;
  std::string hex;
  while (hex.size() < digits) hex += fmt::format("{:08x}", random());
  hex.resize(digits);
  return hex;
}

}  // namespace cohort
