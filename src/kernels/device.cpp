#include "kernels/device.h"

#include <variant>

#include "base/error.h"
#include "base/system_memory.h"
#include "kernels/ops.h"

namespace cohort::kernels {
namespace {

template <class T>
std::unique_ptr<Ops> make(cpu::Cpu& cpu) {
  return std::make_unique<T>(cpu);
}

/// Half of what is free: arrays of blocks are held twice while they grow.
size_t gpu_memory_bytes() {
  return std::get<size_t>(mx::device_info(mx::Device::gpu).at("free_memory")) / 2;
}

/// A device; in the order of the enum.
struct Row {
  mx::Device::DeviceType runs_on;
  std::unique_ptr<Ops> (*ops)(cpu::Cpu& cpu);
  bool host_blocks;
  size_t buffer_cache_bytes;  // that MLX keeps for the next forward
  size_t (*free_block_bytes)();
};

constexpr Row kRows[] = {
    {mx::Device::cpu, make<CpuOps>, true, size_t{64} << 20, available_memory_bytes},
    {mx::Device::gpu, make<PlainOps>, false, size_t{4} << 30, gpu_memory_bytes},
    {mx::Device::cpu, make<PlainOps>, false, size_t{64} << 20, available_memory_bytes},
};

const Row& row_of(Device device) {
  return kRows[static_cast<size_t>(device)];
}

}  // namespace

std::unique_ptr<Ops> make_ops(Device device, cpu::Cpu& cpu) {
  return row_of(device).ops(cpu);
}

bool has_host_blocks(Device device) {
  return row_of(device).host_blocks;
}

void require(Device device) {
  if (mx::is_available(row_of(device).runs_on)) return;
  fail(ErrorKind::kInvalidRequest,
       "--device gpu: there is no GPU, or this program cannot use one: that takes a build with "
       "`cmake --preset cuda` (docs/cuda.md)");
}

void use(Device device) {
  mx::set_default_device(row_of(device).runs_on);
  mx::disable_compile();  // on the CPU, it runs a C++ compiler
  mx::set_cache_limit(row_of(device).buffer_cache_bytes);
}

size_t free_block_bytes(Device device) {
  return row_of(device).free_block_bytes();
}

}  // namespace cohort::kernels
