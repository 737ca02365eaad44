#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "kernels/cpu/kernels.h"

#if defined(COHORT_X86_KERNELS) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace cohort::kernels::cpu {
namespace {

#if defined(COHORT_X86_KERNELS)
/// Whether the processor has AMX for bytes and the system lets this process use its registers; to
/// ask is to get it.
///   source  Linux, Documentation/arch/x86/xstate.rst
bool grants_amx() {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
         ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> found;
#if defined(COHORT_X86_KERNELS)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni")) {
    if (grants_amx()) found.push_back(&kAmxKernels);
    found.push_back(&kAvx512Kernels);
  }
  if (avx2 && __builtin_cpu_supports("avxvnni")) found.push_back(&kAvxVnniKernels);
  if (avx2) found.push_back(&kAvx2Kernels);
#elif defined(COHORT_ARM_KERNELS)
#if defined(__linux__)
  const bool dot_products = (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  const bool mixed_signs = (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#else  // Apple: all of its processors have the former
  const bool dot_products = true, mixed_signs = false;
#endif
  if (dot_products && mixed_signs) found.push_back(&kNeonI8mmKernels);
  if (dot_products) found.push_back(&kNeonKernels);
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
