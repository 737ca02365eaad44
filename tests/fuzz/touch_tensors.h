#pragma once

#include <cstdlib>
#include <functional>
#include <span>
#include <vector>

#include "model/tensor_view.h"

namespace cohort::test {

/// Aborts unless every tensor lies inside `file` and is as long as its shape and type say; reads
/// its first and last byte, for the address sanitizer.
inline void touch_tensors(const std::vector<model::TensorView>& tensors,
                          std::span<const std::byte> file) {
  for (const model::TensorView& tensor : tensors) {
    const std::span<const std::byte> bytes = tensor.bytes;
    const std::less_equal<const std::byte*> before{};
    const bool inside = before(file.data(), bytes.data()) &&
                        before(bytes.data() + bytes.size(), file.data() + file.size());
    const auto size = model::stored_bytes(tensor.type, tensor.shape);
    if (!inside || !size || static_cast<size_t>(*size) != bytes.size()) std::abort();
    if (bytes.empty()) continue;
    [[maybe_unused]] volatile std::byte sink = bytes.front();
    sink = bytes.back();
  }
}

}  // namespace cohort::test
