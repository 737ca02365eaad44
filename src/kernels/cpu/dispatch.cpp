#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "kernels/cpu/kernels.h"

namespace cohort::kernels::cpu {

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> found;
#if defined(COHORT_WIDE_KERNELS)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni")) {
    found.push_back(&kAvx512Kernels);
  }
  if (avx2) found.push_back(&kAvx2Kernels);
#endif
  found.push_back(&kScalarKernels);
  return found;
}

const Kernels& best_kernels() {
  const std::vector<const Kernels*> found = available_kernels();
  const char* forced = std::getenv("COHORT_ISA");
  if (forced == nullptr) return *found.front();
  for (const Kernels* kernels : found) {
    if (std::string_view(kernels->name) == forced) return *kernels;
  }
  std::string names;
  for (const Kernels* kernels : found)
    names += std::string(names.empty() ? "" : ", ") + kernels->name;
  fail(ErrorKind::kUnsupported, "COHORT_ISA={}: this machine has {}", forced, names);
}

}  // namespace cohort::kernels::cpu
