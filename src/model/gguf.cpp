#include "model/gguf.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

namespace cohort::model {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr auto kBad = ErrorKind::kInvalidRequest;

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kMinPairBytes = 8 + 4 + 1;            // key length, type, one byte of value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // name length, rank, one dim, type, offset
constexpr uint32_t kMaxRank = 4;
constexpr uint32_t kMinAlignment = 8;
constexpr uint32_t kMaxAlignment = 1 << 20;

// Types that llama.cpp has and Cohort has not, so that the error can name them.
constexpr std::pair<uint32_t, std::string_view> kOtherTypes[] = {
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {29, "IQ1_M"},   {34, "TQ1_0"}, {35, "TQ2_0"},  {39, "MXFP4"}, {40, "NVFP4"}};

// Reads forward through the file; every read is checked against its end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  uint64_t place() const { return place_; }
  uint64_t remaining() const { return bytes_.size() - place_; }
  /// What the next reads belong to, for errors.
  void enter(std::string context) { context_ = std::move(context); }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > remaining()) {
      fail(kBad, "{}: {}: {} of {} bytes at byte {} runs past the end of the file", file_, context_,
           what, count, place_);
    }
    const auto taken = bytes_.subspan(place_, count);
    place_ += count;
    return taken;
  }

  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view string(std::string_view what) {
    const auto length = number<uint64_t>(what);
    const auto text = take(length, what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  template <class... Args>
  [[noreturn]] void refuse(ErrorKind kind, fmt::format_string<Args...> reason, Args&&... args) {
    fail(kind, "{}: {}: {}", file_, context_, fmt::format(reason, std::forward<Args>(args)...));
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view file_;
  std::string context_ = "file header";
  uint64_t place_ = 0;
};

uint64_t number_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    default:
      return 0;
  }
}

GgufArray read_array(Cursor& in) {
  GgufArray array{
      .type = GgufType(in.number<uint32_t>("array element type")), .numbers = {}, .strings = {}};
  array.count = in.number<uint64_t>("array length");
  if (array.type == GgufType::kArray) in.refuse(kBad, "an array of arrays is not allowed");
  if (array.type == GgufType::kString) {
    constexpr uint64_t kMinStringBytes = 8;
    if (array.count > in.remaining() / kMinStringBytes) {
      in.refuse(kBad, "an array of {} strings does not fit the file", array.count);
    }
    array.strings.reserve(array.count);
    for (uint64_t i = 0; i < array.count; ++i) array.strings.push_back(in.string("string"));
    return array;
  }
  const uint64_t element_bytes = number_bytes(array.type);
  if (element_bytes == 0) {
    in.refuse(kBad, "the array element type {} is unknown", uint32_t(array.type));
  }
  if (array.count > in.remaining() / element_bytes) {
    in.refuse(kBad, "an array of {} numbers does not fit the file", array.count);
  }
  array.numbers = in.take(array.count * element_bytes, "array");
  if (array.type == GgufType::kBool && std::any_of(array.numbers.begin(), array.numbers.end(),
                                                   [](std::byte b) { return b > std::byte{1}; })) {
    in.refuse(kBad, "a bool is neither 0 nor 1");
  }
  return array;
}

GgufValue read_value(Cursor& in) {
  const auto type = GgufType(in.number<uint32_t>("value type"));
  switch (type) {
    case GgufType::kU8:
      return {type, uint64_t{in.number<uint8_t>("value")}};
    case GgufType::kU16:
      return {type, uint64_t{in.number<uint16_t>("value")}};
    case GgufType::kU32:
      return {type, uint64_t{in.number<uint32_t>("value")}};
    case GgufType::kU64:
      return {type, in.number<uint64_t>("value")};
    case GgufType::kI8:
      return {type, int64_t{in.number<int8_t>("value")}};
    case GgufType::kI16:
      return {type, int64_t{in.number<int16_t>("value")}};
    case GgufType::kI32:
      return {type, int64_t{in.number<int32_t>("value")}};
    case GgufType::kI64:
      return {type, in.number<int64_t>("value")};
    case GgufType::kF32:
      return {type, double{in.number<float>("value")}};
    case GgufType::kF64:
      return {type, in.number<double>("value")};
    case GgufType::kString:
      return {type, in.string("string")};
    case GgufType::kArray:
      return {type, read_array(in)};
    case GgufType::kBool: {
      const auto value = in.number<uint8_t>("value");
      if (value > 1) in.refuse(kBad, "the bool is {}, neither 0 nor 1", value);
      return {type, value == 1};
    }
  }
  in.refuse(kBad, "the value type {} is unknown", uint32_t(type));
}

TensorType tensor_type(uint32_t id, Cursor& in) {
  std::vector<std::string_view> known;
  for (const TensorTypeInfo& t : kTensorTypes) {
    if (t.ggml_id == static_cast<int64_t>(id)) return t.type;
    if (t.ggml_id >= 0) known.push_back(t.name);
  }
  for (const auto& [other, name] : kOtherTypes) {
    if (other == id) {
      in.refuse(ErrorKind::kUnsupported, "the type {} is not supported; supported: {}", name,
                fmt::join(known, ", "));
    }
  }
  in.refuse(kBad, "the type id {} is unknown; supported: {}", id, fmt::join(known, ", "));
}

struct TensorInfo {
  TensorView view;  // without bytes
  uint64_t offset;  // in the data section
  uint64_t size;    // bytes
};

TensorInfo read_tensor_info(Cursor& in, uint64_t number) {
  in.enter(fmt::format("tensor number {}", number));
  const std::string name(in.string("name"));
  in.enter(fmt::format("tensor {}", printable(name)));
  const auto rank = in.number<uint32_t>("number of dimensions");
  if (rank < 1 || rank > kMaxRank) in.refuse(kBad, "{} dimensions are not within 1..4", rank);
  std::vector<int64_t> shape(rank);
  // The file gives the innermost dimension first.
  for (auto dim = shape.rbegin(); dim != shape.rend(); ++dim) {
    *dim = in.number<int64_t>("dimension");
    if (*dim < 1) in.refuse(kBad, "a dimension of {} is not positive", *dim);
  }
  const TensorType type = tensor_type(in.number<uint32_t>("type"), in);
  const TensorTypeInfo& t = info(type);
  if (shape.back() % t.block_elements != 0) {
    in.refuse(kBad, "its rows of {} elements are no whole number of {} blocks of {}", shape.back(),
              t.name, t.block_elements);
  }
  const std::optional<int64_t> size = stored_bytes(type, shape);
  if (!size) in.refuse(kBad, "the size of shape {} overflows", shape_text(shape));
  const auto offset = in.number<uint64_t>("offset");
  return {.view = {.name = name, .type = type, .shape = std::move(shape), .bytes = {}},
          .offset = offset,
          .size = static_cast<uint64_t>(*size)};
}

// Gives every tensor its bytes in the data section.
std::vector<TensorView> place_tensors(std::vector<TensorInfo> infos, uint32_t alignment,
                                      std::span<const std::byte> data, std::string_view file) {
  std::set<std::string_view> names;
  for (TensorInfo& i : infos) {
    const std::string& name = i.view.name;
    if (!names.insert(name).second) fail_tensor(kBad, file, name, "the name appears twice");
    if (i.offset % alignment != 0) {
      fail_tensor(kBad, file, name, "its offset {} is no multiple of the alignment {}", i.offset,
                  alignment);
    }
    if (i.offset > data.size() || i.size > data.size() - i.offset) {
      fail_tensor(kBad, file, name, "{} bytes at offset {} leave the file, which has {} data bytes",
                  i.size, i.offset, data.size());
    }
    i.view.bytes = data.subspan(i.offset, i.size);
  }
  names.clear();
  std::vector<TensorView> tensors;
  for (TensorInfo& i : infos) tensors.push_back(std::move(i.view));
  by_place(tensors, file);
  return tensors;
}

uint32_t read_version(Cursor& in) {
  const auto magic = in.take(kMagic.size(), "magic");
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    in.refuse(kBad, "it does not start with \"GGUF\"");
  }
  const auto version = in.number<uint32_t>("version");
  if (version != 0 && (version & 0xffff) == 0) {
    in.refuse(ErrorKind::kUnsupported, "big-endian GGUF is not supported");
  }
  if (version != 2 && version != 3) {
    in.refuse(ErrorKind::kUnsupported, "GGUF version {} is not supported; supported: 2, 3",
              version);
  }
  return version;
}

}  // namespace

GgufIndex GgufIndex::parse(std::span<const std::byte> bytes, std::string_view file) {
  GgufIndex index{.metadata = GgufMetadata(std::string(file)), .tensors = {}};
  Cursor in(bytes, file);
  index.version = read_version(in);
  const auto num_tensors = in.number<uint64_t>("number of tensors");
  const auto num_pairs = in.number<uint64_t>("number of metadata pairs");
  if (num_pairs > in.remaining() / kMinPairBytes) {
    in.refuse(kBad, "{} metadata pairs do not fit the file", num_pairs);
  }
  if (num_tensors > in.remaining() / kMinTensorBytes) {
    in.refuse(kBad, "{} tensors do not fit the file", num_tensors);
  }

  for (uint64_t i = 0; i < num_pairs; ++i) {
    in.enter(fmt::format("metadata pair number {}", i));
    const std::string_view key = in.string("key");
    in.enter(fmt::format("metadata key {}", printable(key)));
    index.metadata.add(std::string(key), read_value(in));
  }
  index.alignment = index.metadata.find<uint32_t>("general.alignment").value_or(index.alignment);
  if (!std::has_single_bit(index.alignment) || index.alignment < kMinAlignment ||
      index.alignment > kMaxAlignment) {
    fail(kBad, "{}: general.alignment is {}, not a power of two in [{}, {}]", file, index.alignment,
         kMinAlignment, kMaxAlignment);
  }

  std::vector<TensorInfo> infos;
  for (uint64_t i = 0; i < num_tensors; ++i) infos.push_back(read_tensor_info(in, i));
  const uint64_t padding = (index.alignment - in.place() % index.alignment) % index.alignment;
  const auto data = bytes.subspan(in.place() + std::min(padding, in.remaining()));
  index.tensors = place_tensors(std::move(infos), index.alignment, data, file);
  return index;
}

}  // namespace cohort::model
