#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "model/gguf.h"

namespace cohort::model {
namespace {

constexpr std::string_view kTypeNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                           "int32",  "float32", "bool",   "string", "array",
                                           "uint64", "int64",   "float64"};

template <class T>
constexpr bool kIsVector = false;
template <class T>
constexpr bool kIsVector<std::vector<T>> = true;

template <class T>
std::string wanted_name() {
  if constexpr (kIsVector<T>) {
    return "array of " + wanted_name<typename T::value_type>();
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    return "string";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_same_v<T, float>) {
    return "float32";
  } else {
    return fmt::format("{}int{}", std::is_signed_v<T> ? "" : "u", 8 * sizeof(T));
  }
}

std::string found_name(const GgufValue& value) {
  const auto name = [](GgufType type) { return kTypeNames[static_cast<uint32_t>(type)]; };
  if (const auto* array = std::get_if<GgufArray>(&value.data)) {
    return fmt::format("array of {}", name(array->type));
  }
  if (const auto* number = std::get_if<uint64_t>(&value.data)) {
    return fmt::format("{} {}", name(value.type), *number);
  }
  if (const auto* number = std::get_if<int64_t>(&value.data)) {
    return fmt::format("{} {}", name(value.type), *number);
  }
  return std::string(name(value.type));
}

// The scalar as T, or nullopt if its kind is another one or its value does not fit.
template <class T>
std::optional<T> scalar_as(const GgufValue& value) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string_view>) {
    if (const auto* same = std::get_if<T>(&value.data)) return *same;
  } else if constexpr (std::is_same_v<T, float>) {
    if (const auto* number = std::get_if<double>(&value.data)) return static_cast<float>(*number);
  } else {
    if (const auto* number = std::get_if<uint64_t>(&value.data)) {
      if (std::in_range<T>(*number)) return static_cast<T>(*number);
    }
    if (const auto* number = std::get_if<int64_t>(&value.data)) {
      if (std::in_range<T>(*number)) return static_cast<T>(*number);
    }
  }
  return std::nullopt;
}

template <class Stored>
Stored element(const GgufArray& array, uint64_t i) {
  Stored value;
  std::memcpy(&value, array.numbers.data() + i * sizeof(Stored), sizeof(Stored));
  return value;
}

GgufValue element_value(const GgufArray& array, uint64_t i) {
  const GgufType type = array.type;
  switch (type) {
    case GgufType::kU8:
      return {type, uint64_t{element<uint8_t>(array, i)}};
    case GgufType::kU16:
      return {type, uint64_t{element<uint16_t>(array, i)}};
    case GgufType::kU32:
      return {type, uint64_t{element<uint32_t>(array, i)}};
    case GgufType::kU64:
      return {type, element<uint64_t>(array, i)};
    case GgufType::kI8:
      return {type, int64_t{element<int8_t>(array, i)}};
    case GgufType::kI16:
      return {type, int64_t{element<int16_t>(array, i)}};
    case GgufType::kI32:
      return {type, int64_t{element<int32_t>(array, i)}};
    case GgufType::kI64:
      return {type, element<int64_t>(array, i)};
    case GgufType::kF32:
      return {type, double{element<float>(array, i)}};
    case GgufType::kF64:
      return {type, element<double>(array, i)};
    case GgufType::kBool:
      return {type, element<uint8_t>(array, i) == 1};
    default:
      return {type, array.strings[i]};
  }
}

template <class T>
std::optional<std::vector<T>> vector_as(const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value.data);
  if (!array) return std::nullopt;
  std::vector<T> out;
  out.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    const std::optional<T> item = scalar_as<T>(element_value(*array, i));
    if (!item) return std::nullopt;
    out.push_back(*item);
  }
  return out;
}

template <class T>
std::optional<T> value_as(const GgufValue& value) {
  if constexpr (kIsVector<T>) {
    return vector_as<typename T::value_type>(value);
  } else {
    return scalar_as<T>(value);
  }
}

}  // namespace

void GgufMetadata::add(std::string key, GgufValue value) {
  const auto [place, is_new] = values_.emplace(std::move(key), std::move(value));
  if (!is_new) {
    fail(ErrorKind::kInvalidRequest, "{}: the metadata key {} appears twice", file_,
         printable(place->first));
  }
}

const GgufValue* GgufMetadata::value(std::string_view key) const {
  const auto place = values_.find(key);
  return place == values_.end() ? nullptr : &place->second;
}

template <class T>
std::optional<T> GgufMetadata::find(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return std::nullopt;
  std::optional<T> result = value_as<T>(*found);
  if (!result) {
    fail(ErrorKind::kInvalidRequest, "{}: the metadata key {} must be {}, but is {}", file_,
         printable(key), wanted_name<T>(), found_name(*found));
  }
  return result;
}

template <class T>
T GgufMetadata::get(std::string_view key) const {
  std::optional<T> result = find<T>(key);
  if (!result) {
    fail(ErrorKind::kInvalidRequest, "{}: the metadata key {} is missing ({} wanted)", file_,
         printable(key), wanted_name<T>());
  }
  return *std::move(result);
}

#define COHORT_METADATA_TYPE(T)                                            \
  template std::optional<T> GgufMetadata::find<T>(std::string_view) const; \
  template T GgufMetadata::get<T>(std::string_view) const;
COHORT_METADATA_TYPE(bool)
COHORT_METADATA_TYPE(uint32_t)
COHORT_METADATA_TYPE(int64_t)
COHORT_METADATA_TYPE(float)
COHORT_METADATA_TYPE(std::string_view)
COHORT_METADATA_TYPE(std::vector<bool>)
COHORT_METADATA_TYPE(std::vector<int32_t>)
COHORT_METADATA_TYPE(std::vector<int64_t>)
COHORT_METADATA_TYPE(std::vector<float>)
COHORT_METADATA_TYPE(std::vector<std::string_view>)
#undef COHORT_METADATA_TYPE

}  // namespace cohort::model
