#include "kernels/cpu/cpu.h"

#include <sched.h>

namespace cohort::kernels::cpu {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace

Cpu::Cpu(int threads, const Kernels& kernels)
    : pool_(threads > 0 ? threads : usable_cores()), kernels_(kernels) {}

std::byte* Cpu::at_least(AlignedBuffer& buffer, size_t bytes) {
  if (buffer.size() < bytes) {
    buffer = {};  // free first: the contents are not kept
    buffer = AlignedBuffer(bytes + bytes / 2);
  }
  return buffer.data();
}

}  // namespace cohort::kernels::cpu
