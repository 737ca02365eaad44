#include "kernels/cpu/cpu.h"

#include "kernels/cpu/cores.h"

namespace cohort::kernels::cpu {

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
