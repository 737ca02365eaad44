#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tensor_view.h"

namespace cohort::model {

/// The type of a metadata value, numbered as in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

struct GgufArray {
  GgufType type;  // of the elements; never kArray
  uint64_t count = 0;
  std::span<const std::byte> numbers;     // little-endian, unaligned; empty for strings
  std::vector<std::string_view> strings;  // kString only
};

/// One metadata value; integers and floats are widened. Strings point into the file; they are not
/// checked to be UTF-8.
struct GgufValue {
  GgufType type;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray> data;
};

/// The typed key-value pairs of a GGUF file.
///
/// T is one of bool, uint32_t, int64_t, float, std::string_view, or a std::vector of bool, int32_t,
/// int64_t, float or std::string_view. Any stored integer type serves a wanted integer type if the
/// value fits, and any stored float type a wanted float; nothing else is converted.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string file) : file_(std::move(file)) {}

  /// The value of a key.
  ///   throws  Error{kInvalidRequest} naming file and key: the key is missing, or it has another
  ///           type (wanted and found are named)
  template <class T>
  T get(std::string_view key) const;
  /// As get(), but nullopt if the key is missing.
  template <class T>
  std::optional<T> find(std::string_view key) const;

  /// The untyped value, or nullptr.
  const GgufValue* value(std::string_view key) const;
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  /// Throws Error{kInvalidRequest} if the key is there already.
  void add(std::string key, GgufValue value);

 private:
  std::string file_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

/// The metadata and the tensors of one GGUF file, every one checked against the file's size.
///   source  GGUF specification: github.com/ggml-org/ggml docs/gguf.md
struct GgufIndex {
  uint32_t version = 0;  // 2 or 3
  uint32_t alignment = 32;
  GgufMetadata metadata;
  std::vector<TensorView> tensors;  // in file order; bytes start at multiples of `alignment`

  /// Reads everything before the tensor data of a whole little-endian file.
  ///   bytes   the file; tensors and strings point into it
  ///   file    its name, for errors
  ///   throws  Error{kInvalidRequest} naming file, key or tensor, and reason; kUnsupported for a
  ///           version or a tensor type that Cohort does not read
  ///   thread  any
  static GgufIndex parse(std::span<const std::byte> bytes, std::string_view file);
};

using GgufFile = IndexedFile<GgufIndex>;

}  // namespace cohort::model
