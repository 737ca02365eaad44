#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/printable.h"

namespace cohort::model {

/// How the elements of a stored tensor are encoded; kTensorTypes says the rest.
enum class TensorType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kBool,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

struct TensorTypeInfo {
  TensorType type;
  std::string_view name;  // as the file formats spell it
  int block_elements;  // consecutive elements of the innermost dimension that are stored together
  int block_bytes;
  int ggml_id;          // the type's number in GGUF files; -1: not used there
  bool in_safetensors;  // the name is a safetensors dtype
};

/// Every type that a checkpoint may hold, in the order of TensorType.
///   source  safetensors format (dtype names); ggml.h and ggml-common.h (ids and block sizes)
inline constexpr TensorTypeInfo kTensorTypes[] = {
    {TensorType::kF32, "F32", 1, 4, 0, true},
    {TensorType::kF16, "F16", 1, 2, 1, true},
    {TensorType::kBF16, "BF16", 1, 2, 30, true},
    {TensorType::kF64, "F64", 1, 8, 28, true},
    {TensorType::kBool, "BOOL", 1, 1, -1, true},
    {TensorType::kI8, "I8", 1, 1, 24, true},
    {TensorType::kU8, "U8", 1, 1, -1, true},
    {TensorType::kI16, "I16", 1, 2, 25, true},
    {TensorType::kU16, "U16", 1, 2, -1, true},
    {TensorType::kI32, "I32", 1, 4, 26, true},
    {TensorType::kU32, "U32", 1, 4, -1, true},
    {TensorType::kI64, "I64", 1, 8, 27, true},
    {TensorType::kU64, "U64", 1, 8, -1, true},
    {TensorType::kF8E4M3, "F8_E4M3", 1, 1, -1, true},
    {TensorType::kF8E5M2, "F8_E5M2", 1, 1, -1, true},
    {TensorType::kF8E8M0, "F8_E8M0", 1, 1, -1, true},
    {TensorType::kQ4_0, "Q4_0", 32, 18, 2, false},
    {TensorType::kQ4_1, "Q4_1", 32, 20, 3, false},
    {TensorType::kQ5_0, "Q5_0", 32, 22, 6, false},
    {TensorType::kQ5_1, "Q5_1", 32, 24, 7, false},
    {TensorType::kQ8_0, "Q8_0", 32, 34, 8, false},
    {TensorType::kQ4_K, "Q4_K", 256, 144, 12, false},
    {TensorType::kQ5_K, "Q5_K", 256, 176, 13, false},
    {TensorType::kQ6_K, "Q6_K", 256, 210, 14, false},
};

constexpr const TensorTypeInfo& info(TensorType type) {
  return kTensorTypes[static_cast<size_t>(type)];
}

/// One tensor of a checkpoint, in place in its mapped file.
struct TensorView {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  // outermost dimension first, in GGUF files too; [] is a scalar
  /// Row-major, little-endian; as long as shape and type say. Lives as long as the file. In a
  /// safetensors file it may start at any address: copy it before reading it as wider elements.
  std::span<const std::byte> bytes;
};

/// The bytes that a tensor of this type and shape takes.
///   returns  nullopt if a dimension is negative, the innermost one is no whole number of blocks,
///            or the product leaves int64 (an empty tensor's other dimensions count for it, too)
std::optional<int64_t> stored_bytes(TensorType type, std::span<const int64_t> shape);

/// The tensors of one file in the order of their bytes.
///   throws  Error{kInvalidRequest} naming two that share bytes
std::vector<const TensorView*> by_place(std::span<const TensorView> tensors, std::string_view file);

/// A mapped checkpoint file and its index.
template <class Index>
struct IndexedFile {
  explicit IndexedFile(const std::string& path)
      : file(path),
        index(Index::parse(file.bytes(), std::filesystem::path(path).filename().string())) {}

  MappedFile file;
  Index index;  // points into `file`
};

/// The shape as "[2, 3]".
std::string shape_text(std::span<const int64_t> shape);

/// Throws Error{kind} "FILE: tensor 'NAME': reason".
template <class... Args>
[[noreturn]] void fail_tensor(ErrorKind kind, std::string_view file, std::string_view tensor,
                              fmt::format_string<Args...> reason, Args&&... args) {
  fail(kind, "{}: tensor {}: {}", file, printable(tensor),
       fmt::format(reason, std::forward<Args>(args)...));
}

}  // namespace cohort::model
