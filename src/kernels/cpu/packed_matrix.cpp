#include "kernels/cpu/packed_matrix.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "kernels/cpu/thread_pool.h"

namespace cohort::kernels::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlabBytes = size_t{32} << 20;

/// Stores sixteen scales (or mins) after the codes of a group.
void store_scales(NumberType type, const float* values, std::byte* out) {
  for (int lane = 0; lane < kTileRows; ++lane) {
    if (type == NumberType::kF32) {
      std::memcpy(out + lane * 4, values + lane, 4);
      continue;
    }
    if (type == NumberType::kI8) {
      out[lane] = static_cast<std::byte>(static_cast<int8_t>(values[lane]));
      continue;
    }
    const uint16_t bits =
        type == NumberType::kF16 ? f32_to_f16(values[lane]) : f32_to_bf16(values[lane]);
    std::memcpy(out + lane * 2, &bits, 2);
  }
}

/// Interleaves sixteen decoded rows of one group into memory of the arena.
void store_group(const PackedMatrix& m, const DecodedGroup* rows, std::byte* out) {
  const QuantLayout& layout = m.layout;
  with_code_bits(layout.bits, [&](auto bits) {
    for (int lane = 0; lane < kTileRows; ++lane) {
      for (int k = 0; k < kGroup; ++k) put_code(out, bits, lane, k, rows[lane].codes[k]);
    }
  });
  const size_t vector_bytes = kTileRows * number_bytes(layout.scale);
  std::byte* next = out + m.code_bytes();
  float values[kTileRows];
  for (int part = 0; part < kGroup / layout.group; ++part, next += vector_bytes) {
    for (int lane = 0; lane < kTileRows; ++lane) values[lane] = rows[lane].scale[part];
    store_scales(layout.scale, values, next);
  }
  if (layout.has_min) {
    for (int lane = 0; lane < kTileRows; ++lane) values[lane] = rows[lane].min;
    store_scales(layout.scale, values, next);
  }
}

void store_factors(const PackedMatrix& m, const DecodedGroup* rows, std::byte* out) {
  float values[kTileRows];
  for (int lane = 0; lane < kTileRows; ++lane) values[lane] = rows[lane].factor;
  store_scales(NumberType::kF16, values, out);
  if (!m.layout.has_min) return;
  for (int lane = 0; lane < kTileRows; ++lane) values[lane] = rows[lane].min_factor;
  store_scales(NumberType::kF16, values, out + kFactorVector);
}

DecodedGroup empty_group(const QuantLayout& layout) {
  DecodedGroup group{};
  std::memset(group.codes, layout.zero, sizeof group.codes);
  return group;
}

}  // namespace

// Mapped, not of the heap: what is freed goes back to the system whole, whatever lies around it.
AlignedBuffer::AlignedBuffer(size_t bytes) {
  if (bytes == 0) return;
  // So much more that a huge page can begin where the buffer does.
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* const mapped =
      ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(mapped);
  size_ = bytes;
  if (slack == 0) return;
  const size_t before = -reinterpret_cast<uintptr_t>(mapped) % kHugePage;
  if (before > 0) ::munmap(mapped, before);
  data_ += before;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t used = (bytes + page - 1) / page * page;
  if (before < slack) ::munmap(data_ + used, slack - before);
  ::madvise(data_, used, MADV_HUGEPAGE);  // what is behind the last whole one stays small pages
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void AlignedBuffer::drop(size_t begin, size_t bytes) noexcept {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
  if (first < end) ::madvise(data_ + first, end - first, MADV_DONTNEED);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::byte* WeightArena::take(size_t bytes) {
  const size_t rounded = (bytes + 63) / 64 * 64;
  if (left_ < rounded) {
    left_ = std::max(kSlabBytes, rounded);
    slabs_.emplace_back(left_);
  }
  std::byte* piece = slabs_.back().data() + slabs_.back().size() - left_;
  left_ -= rounded;
  used_bytes_ += rounded;
  return piece;
}

PackedMatrix pack_quantized(WeightArena& arena, ThreadPool& pool, int rows, int cols,
                            const QuantLayout& layout, const GroupDecoder& decode) {
  const bool of_k_quant = layout.scale == NumberType::kI8;
  check(layout.group == 16 ? of_k_quant && layout.bits == 6 && !layout.has_min
                           : !of_k_quant || layout.bits == 4 || layout.bits == 5,
        "the kernels have this layout");
  PackedMatrix matrix{.rows = rows, .cols = cols, .dense = false, .layout = layout};
  matrix.data = arena.take(matrix.total_bytes());
  pool.parallel_for(static_cast<size_t>(matrix.tiles()), [&](size_t tile) {
    std::byte* const start = matrix.data + tile * matrix.tile_bytes();
    DecodedGroup group[kTileRows];
    for (int g = 0; g < matrix.groups(); ++g) {
      for (int lane = 0; lane < kTileRows; ++lane) {
        group[lane] = empty_group(layout);
        const auto row = static_cast<int64_t>(tile) * kTileRows + lane;
        if (row < rows) decode(row, g, group[lane]);
      }
      store_group(matrix, group, start + g * matrix.group_bytes());
      if (matrix.factor_bytes() > 0 && g % kFactorGroups == 0) {
        store_factors(matrix, group, start + matrix.factors_at(g));
      }
    }
  });
  return matrix;
}

PackedMatrix pack_dense(WeightArena& arena, ThreadPool& pool, int rows, int cols,
                        NumberType element, const std::function<const std::byte*(int64_t)>& row) {
  PackedMatrix matrix{.rows = rows, .cols = cols, .dense = true, .element = element};
  matrix.data = arena.take(matrix.total_bytes());
  const size_t bytes = number_bytes(element);
  pool.parallel_for(static_cast<size_t>(matrix.tiles()), [&](size_t tile) {
    std::byte* out = matrix.data + tile * matrix.tile_bytes();
    for (int lane = 0; lane < kTileRows; ++lane) {
      const auto index = static_cast<int64_t>(tile) * kTileRows + lane;
      if (index >= rows) break;
      const std::byte* source = row(index);
      for (size_t k = 0; k < static_cast<size_t>(cols); ++k) {
        std::memcpy(out + (k * kTileRows + static_cast<size_t>(lane)) * bytes, source + k * bytes,
                    bytes);
      }
    }
  });
  return matrix;
}

void PackedMatrix::unpack_row(int index, float* out) const {
  const int lane = index % kTileRows;
  const std::byte* p = tile(index / kTileRows);
  if (dense) {
    for (int k = 0; k < cols; ++k, p += kTileRows * number_bytes(element)) {
      out[k] = load_float(element, p, lane);
    }
    return;
  }
  const std::byte* const start = p;
  const size_t vector_bytes = kTileRows * number_bytes(layout.scale);
  const int parts = kGroup / layout.group;
  for (int g = 0; g < groups(); ++g, p += group_bytes()) {
    // The scale of a part, or the min behind the last one.
    const auto scale_at = [&](int part) {
      const float value = load_float(layout.scale, p + code_bytes() + part * vector_bytes, lane);
      if (layout.scale != NumberType::kI8) return value;
      const std::byte* factors = start + factors_at(g) + (part < parts ? 0 : kFactorVector);
      return value * load_float(NumberType::kF16, factors, lane);
    };
    const float scales[] = {scale_at(0), scale_at(parts - 1)};
    const float min = layout.has_min ? scale_at(parts) : 0.0f;
    for (int k = 0; k < kGroup && g * kGroup + k < cols; ++k) {
      const auto code = static_cast<int>(get_code(p, layout.bits, lane, k));
      out[g * kGroup + k] =
          std::fma(scales[k / layout.group], static_cast<float>(code - layout.zero), min);
    }
  }
}

float load_float(NumberType type, const std::byte* data, int64_t index) {
  if (type == NumberType::kF32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  if (type == NumberType::kI8) return static_cast<float>(static_cast<int8_t>(data[index]));
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return type == NumberType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 1023u;
  uint32_t wide;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    std::memcpy(&wide, &value, 4);
  } else if (exponent == 31) {
    wide = 0x7f800000u | (mantissa << 13);
  } else {
    wide = ((exponent + 112) << 23) | (mantissa << 13);
  }
  wide |= sign;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

uint16_t f32_to_f16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (!(magnitude < 65520.0f)) {
    return static_cast<uint16_t>(sign | (std::isnan(value) ? 0x7e00 : 0x7c00));
  }
  if (magnitude < 6.103515625e-05f) {  // subnormal: a multiple of 2^-24
    return static_cast<uint16_t>(sign |
                                 static_cast<int>(std::nearbyint(std::ldexp(magnitude, 24))));
  }
  uint32_t wide;
  std::memcpy(&wide, &magnitude, 4);
  wide += 0xfffu + ((wide >> 13) & 1);  // round to nearest even
  return static_cast<uint16_t>(sign | ((wide >> 13) - (112u << 10)));
}

}  // namespace cohort::kernels::cpu
