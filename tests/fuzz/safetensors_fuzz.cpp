#include <cstddef>
#include <cstdint>

#include "model/safetensors.h"
#include "tests/fuzz/touch_tensors.h"

/// Any bytes are either refused with an Error or yield tensors that lie inside them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    test::touch_tensors(model::SafetensorsIndex::parse(bytes, "fuzz").tensors, bytes);
  } catch (const Error&) {
  }
  return 0;
}
