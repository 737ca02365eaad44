#include <cstddef>
#include <cstdint>

#include "model/gguf.h"
#include "tests/fuzz/touch_tensors.h"

namespace {

using namespace cohort;

template <class T>
void read_as(const model::GgufMetadata& metadata, std::string_view key) {
  try {
    metadata.get<T>(key);
  } catch (const Error&) {
  }
}

}  // namespace

/// Any bytes are either refused with an Error or yield values that can be read, or refused, as any
/// type, and tensors that lie inside them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const model::GgufIndex index = model::GgufIndex::parse(bytes, "fuzz");
    test::touch_tensors(index.tensors, bytes);
    for (const auto& [key, value] : index.metadata.values()) {
      read_as<bool>(index.metadata, key);
      read_as<uint32_t>(index.metadata, key);
      read_as<int64_t>(index.metadata, key);
      read_as<float>(index.metadata, key);
      read_as<std::string_view>(index.metadata, key);
      read_as<std::vector<bool>>(index.metadata, key);
      read_as<std::vector<int32_t>>(index.metadata, key);
      read_as<std::vector<float>>(index.metadata, key);
      read_as<std::vector<std::string_view>>(index.metadata, key);
    }
  } catch (const Error&) {
  }
  return 0;
}
