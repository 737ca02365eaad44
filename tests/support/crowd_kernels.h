#pragma once

#include <vector>

#include "kernels/cpu/kernels.h"

namespace cohort::test {

/// The kernels that crowds of rows of whole models run on: all that this machine has. Under the
/// address sanitizer, where those in plain C++ take some hundred times as long, the best ones:
/// tests/kernels_cpu compares the others.
inline std::vector<const kernels::cpu::Kernels*> crowd_kernels() {
#ifdef __SANITIZE_ADDRESS__
  return {&kernels::cpu::best_kernels()};
#else
  return kernels::cpu::available_kernels();
#endif
}

}  // namespace cohort::test
