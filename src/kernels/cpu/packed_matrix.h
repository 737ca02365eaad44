#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string_view>

#include "kernels/cpu/code_vectors.h"

namespace cohort::kernels::cpu {

class ThreadPool;

/// Zeroed memory on pages of its own, huge ones where the system gives them. Move-only.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  /// Gives whole pages of a part back to the system; they are zero when they are used again.
  void drop(size_t begin, size_t bytes) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Memory for weights: large slabs on huge pages, so that streaming through a model misses no page
/// table entries. Pieces live as long as the arena.
class WeightArena {
 public:
  std::byte* take(size_t bytes);  // zeroed
  size_t used_bytes() const { return used_bytes_; }

 private:
  std::deque<AlignedBuffer> slabs_;
  size_t left_ = 0;  // in the last slab
  size_t used_bytes_ = 0;
};

/// Of dense weights and of scales; kI8 of scales only, times an f16 factor.
enum class NumberType : uint8_t { kF32, kF16, kBF16, kI8 };

constexpr size_t number_bytes(NumberType type) {
  return type == NumberType::kF32 ? 4 : type == NumberType::kI8 ? 1 : 2;
}
constexpr int kFactorGroups = 8;  // share a factor of their scales and one of their mins
constexpr size_t kFactorVector = kTileRows * 2;  // bytes: those of scales, then those of mins

/// How a quantized matrix is stored: weight = scale * (code - zero) + min, scale and min per
/// `group` inputs.
struct QuantLayout {
  int bits = 4;  // of a code: 2, 3, 4, 5, 6 or 8; with scales of kI8 4 or 5, or 6 in groups of 16
  NumberType scale = NumberType::kF16;
  bool has_min = false;
  int zero = 0;    // 0, or so much that a code less it is a signed byte
  int group = 32;  // or 16, of scales of kI8 and no min
};

/// A weight matrix in the one layout that the CPU kernels read.
///   layout  tiles of 16 rows, lanes interleaved, so that a kernel never sums across lanes:
///           quantized  [tiles]{ [groups of 32]{ codes, scales[32 / group][16], mins[16]? },
///                      [groups / 8]{ factors[16], min factors[16]? } where scales are kI8 }
///                      codes: code_vectors.h
///           dense      [tiles][cols][16]
///   padding rows to 16 and inputs to 32 with weights that contribute nothing
struct PackedMatrix {
  int rows = 0;  // outputs
  int cols = 0;  // inputs
  bool dense = false;
  QuantLayout layout;                     // quantized only
  NumberType element = NumberType::kF32;  // dense only
  std::byte* data = nullptr;              // in the arena

  int tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  int groups() const { return (cols + kGroup - 1) / kGroup; }
  size_t code_bytes() const { return code_vector_bytes(layout.bits); }
  size_t group_bytes() const {
    const size_t vectors = static_cast<size_t>(kGroup / layout.group) + (layout.has_min ? 1 : 0);
    return code_bytes() + vectors * kTileRows * number_bytes(layout.scale);
  }
  size_t factor_bytes() const {
    return layout.scale != NumberType::kI8 ? 0 : (layout.has_min ? 2 : 1) * kFactorVector;
  }
  size_t total_bytes() const { return static_cast<size_t>(tiles()) * tile_bytes(); }
  size_t tile_bytes() const {
    return dense ? static_cast<size_t>(cols) * kTileRows * number_bytes(element)
                 : factors_at(groups() + kFactorGroups - 1);
  }
  const std::byte* tile(int index) const { return data + index * tile_bytes(); }
  /// Where the factors of a group are in its tile: behind all groups.
  size_t factors_at(int group) const {
    return groups() * group_bytes() + group / kFactorGroups * factor_bytes();
  }

  /// Writes row `index` as f32 to out[cols], with the arithmetic of the exact matmul.
  void unpack_row(int index, float* out) const;
};

/// 32 weights of one row, decoded: weight = scale[i / group] * (code[i] - zero) + min. If scales
/// are kI8, scale and min are whole, to be multiplied by the factors.
struct DecodedGroup {
  uint8_t codes[kGroup];
  float scale[2];
  float min;
  float factor, min_factor;  // the same in all groups that share it
};

/// Decodes inputs [32 * group, 32 * group + 32) of source row `row` into `out`, where every code is
/// `zero` and scales and min are 0.
///   thread  any worker of the pool, several at once; must not throw
using GroupDecoder = std::function<void(int64_t row, int64_t group, DecodedGroup& out)>;

/// Packs rows x cols weights into memory of the arena; `decode` is asked for every row and group.
PackedMatrix pack_quantized(WeightArena& arena, ThreadPool& pool, int rows, int cols,
                            const QuantLayout& layout, const GroupDecoder& decode);
/// `row(i)` returns the first of cols elements of type `element` (any alignment).
PackedMatrix pack_dense(WeightArena& arena, ThreadPool& pool, int rows, int cols,
                        NumberType element, const std::function<const std::byte*(int64_t)>& row);

/// A GGUF block format: how its blocks become groups of a packed matrix.
struct BlockFormat {
  std::string_view name;  // as the GGUF specification spells it
  int block_elements;
  int block_bytes;
  QuantLayout layout;
  void (*decode)(const std::byte* row, int64_t group, DecodedGroup& out);
};

/// The format of this name, or nullptr.
const BlockFormat* block_format(std::string_view name);
std::span<const BlockFormat> block_formats();

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
inline float bf16_to_f32(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  __builtin_memcpy(&value, &wide, 4);
  return value;
}
/// Rounds to nearest even; a NaN stays a NaN.
inline uint16_t f32_to_bf16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 64);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}
/// Element `index` of an array of this type; any alignment.
float load_float(NumberType type, const std::byte* data, int64_t index);

}  // namespace cohort::kernels::cpu
