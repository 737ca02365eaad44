#include "model/tensor_view.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace cohort::model {
namespace {

constexpr bool table_follows_enum() {
  for (size_t i = 0; i < std::size(kTensorTypes); ++i) {
    if (kTensorTypes[i].type != static_cast<TensorType>(i)) return false;
  }
  return info(TensorType::kQ6_K).type == TensorType::kQ6_K;
}
static_assert(table_follows_enum());

}  // namespace

std::optional<int64_t> stored_bytes(TensorType type, std::span<const int64_t> shape) {
  const TensorTypeInfo& t = info(type);
  const int64_t innermost = shape.empty() ? 1 : shape.back();
  if (innermost % t.block_elements != 0) return std::nullopt;
  // `nonempty` counts an empty dimension as 1, so that no partial product (a stride) can overflow.
  int64_t nonempty = t.block_bytes;
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    empty = empty || dim == 0;
    if (__builtin_mul_overflow(nonempty, dim == 0 ? 1 : dim, &nonempty)) return std::nullopt;
  }
  return empty ? 0 : nonempty / t.block_elements;
}

std::vector<const TensorView*> by_place(std::span<const TensorView> tensors,
                                        std::string_view file) {
  std::vector<const TensorView*> sorted;
  for (const TensorView& tensor : tensors) sorted.push_back(&tensor);
  const auto place = [](const TensorView* tensor) {
    return std::pair(tensor->bytes.data(), tensor->bytes.data() + tensor->bytes.size());
  };
  std::ranges::sort(sorted, {}, place);
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (place(sorted[i]).first < place(sorted[i - 1]).second) {
      fail_tensor(ErrorKind::kInvalidRequest, file, sorted[i]->name, "its data overlap those of {}",
                  printable(sorted[i - 1]->name));
    }
  }
  return sorted;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace cohort::model
