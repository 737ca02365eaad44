#include <cstring>

#include "kernels/cpu_node.h"
#include "kernels/ops.h"

namespace cohort::kernels {

mx::array PlainOps::as_array(const std::vector<int32_t>& values) {
  return mx::array(values.begin(), {static_cast<int>(values.size())}, mx::int32);
}

mx::array CpuOps::embed(const cpu::PackedMatrix& table, std::vector<int32_t> ids, float scale) {
  const int count = static_cast<int>(ids.size());
  return cpu_node(
      "embed", {count, table.cols}, mx::float32, {},
      [this, &table, ids = std::move(ids), scale](std::span<const void* const>, void* out) {
        cpu_.pool().parallel_for(ids.size(), [&](size_t i) {
          float* row = static_cast<float*>(out) + i * table.cols;
          table.unpack_row(ids[i], row);
          for (int k = 0; k < table.cols; ++k) row[k] *= scale;
        });
      });
}

mx::array PlainOps::embed(const cpu::PackedMatrix& table, std::vector<int32_t> ids, float scale) {
  return mx::multiply(mx::take(weights({&table}), as_array(ids), 0), mx::array(scale));
}

mx::array CpuOps::select_rows(const mx::array& x, std::vector<int32_t> indices) {
  const int count = static_cast<int>(indices.size());
  const auto row_bytes = static_cast<size_t>(x.shape(1)) * sizeof(float);
  return cpu_node(
      "select_rows", {count, x.shape(1)}, mx::float32, {x},
      [indices = std::move(indices), row_bytes](std::span<const void* const> in, void* out) {
        const auto* from = static_cast<const std::byte*>(in[0]);
        for (size_t i = 0; i < indices.size(); ++i) {
          std::memcpy(static_cast<std::byte*>(out) + i * row_bytes,
                      from + static_cast<size_t>(indices[i]) * row_bytes, row_bytes);
        }
      });
}

mx::array PlainOps::select_rows(const mx::array& x, std::vector<int32_t> indices) {
  return mx::take(x, as_array(indices), 0);
}

}  // namespace cohort::kernels
