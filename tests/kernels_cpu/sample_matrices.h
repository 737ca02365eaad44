#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/packed_matrix.h"
#include "tests/support/random_data.h"

namespace cohort::kernels::cpu {

/// Blocks of one format with sane scales, and the matrix packed from them.
struct Sample {
  std::string name;
  PackedMatrix matrix;
};

inline void set_half(uint8_t* p, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(p, &bits, 2);
}

inline Sample block_sample(WeightArena& arena, ThreadPool& pool, const BlockFormat& format,
                           int rows, int cols) {
  const int blocks = (cols + format.block_elements - 1) / format.block_elements;
  const size_t row_bytes = static_cast<size_t>(blocks) * format.block_bytes;
  auto bytes = std::make_shared<std::vector<uint8_t>>(test::random_bytes(rows * row_bytes, 7));
  for (size_t b = 0; b < bytes->size() / format.block_bytes; ++b) {
    uint8_t* block = bytes->data() + b * format.block_bytes;
    const float d = 0.01f + 0.001f * static_cast<float>(b % 7);
    if (format.name == "Q6_K") {
      set_half(block + 208, d / 64);
    } else {
      set_half(block, d);
      if (format.layout.has_min) set_half(block + 2, format.block_elements == 256 ? d : -5 * d);
    }
  }
  return {std::string(format.name),
          pack_quantized(arena, pool, rows, cols, format.layout,
                         [=](int64_t row, int64_t group, DecodedGroup& out) {
                           format.decode(reinterpret_cast<const std::byte*>(bytes->data()) +
                                             row * static_cast<int64_t>(row_bytes),
                                         group, out);
                         })};
}

inline Sample dense_sample(WeightArena& arena, ThreadPool& pool, NumberType type, int rows,
                           int cols) {
  const auto values = test::random_floats(static_cast<size_t>(rows) * cols, 11, 0.05f);
  std::vector<std::byte> bytes(values.size() * number_bytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t wide;
    std::memcpy(&wide, &values[i], 4);
    const auto bits =
        type == NumberType::kF16 ? f32_to_f16(values[i]) : static_cast<uint16_t>(wide >> 16);
    if (type == NumberType::kF32) std::memcpy(&bytes[i * 4], &values[i], 4);
    if (type != NumberType::kF32) std::memcpy(&bytes[i * 2], &bits, 2);
  }
  const size_t row_bytes = static_cast<size_t>(cols) * number_bytes(type);
  return {"dense", pack_dense(arena, pool, rows, cols, type,
                              [&](int64_t row) { return bytes.data() + row * row_bytes; })};
}

/// One of every format, layout and dense type.
inline std::vector<Sample> samples(WeightArena& arena, ThreadPool& pool, int rows, int cols) {
  std::vector<Sample> out;
  for (const BlockFormat& format : block_formats())
    out.push_back(block_sample(arena, pool, format, rows, cols));
  for (NumberType type : {NumberType::kF32, NumberType::kF16, NumberType::kBF16}) {
    out.push_back(dense_sample(arena, pool, type, rows, cols));
  }
  for (NumberType scale : {NumberType::kF32, NumberType::kBF16}) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      const int codes = 1 << bits;
      const QuantLayout layout{bits, scale, true, 0, 32};
      out.push_back({"affine", pack_quantized(arena, pool, rows, cols, layout,
                                              [=](int64_t row, int64_t g, DecodedGroup& group) {
                                                const auto bytes = test::random_bytes(
                                                    32, static_cast<uint32_t>(row * 131 + g));
                                                for (int i = 0; i < 32; ++i)
                                                  group.codes[i] =
                                                      static_cast<uint8_t>(bytes[i] % codes);
                                                group.scale[0] = group.scale[1] = 0.0078125f;
                                                group.min = -0.0625f;
                                              })});
    }
  }
  return out;
}

}  // namespace cohort::kernels::cpu
