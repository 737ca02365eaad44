#include "model/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/json.h"

namespace cohort::model {
namespace {

namespace bj = boost::json;

constexpr uint64_t kLengthBytes = 8;               // the file starts with the header's length
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxHeaderDepth = 8;              // a valid header has 3

TensorType tensor_type(std::string_view dtype, std::string_view file, std::string_view tensor) {
  std::vector<std::string_view> known;
  for (const TensorTypeInfo& t : kTensorTypes) {
    if (t.in_safetensors && t.name == dtype) return t.type;
    if (t.in_safetensors) known.push_back(t.name);
  }
  fail_tensor(ErrorKind::kUnsupported, file, tensor, "the dtype {} is not supported; supported: {}",
              printable(dtype), fmt::join(known, ", "));
}

// A header number that must be an integer in [0, 2^63).
int64_t natural(const bj::value& value, std::string_view what, std::string_view file,
                std::string_view tensor) {
  if (const int64_t* number = value.if_int64(); number && *number >= 0) return *number;
  fail_tensor(ErrorKind::kInvalidRequest, file, tensor, "{} holds {}, not an integer in [0, 2^63)",
              what, printable(bj::serialize(value)));
}

const bj::array& array_field(const bj::object& entry, const char* key, std::string_view file,
                             std::string_view tensor) {
  const bj::value* value = entry.if_contains(key);
  if (!value || !value->is_array()) {
    fail_tensor(ErrorKind::kInvalidRequest, file, tensor, "{} is missing or not an array", key);
  }
  return value->get_array();
}

TensorView read_tensor(std::string_view name, const bj::value& value,
                       std::span<const std::byte> data, std::string_view file) {
  constexpr auto kBad = ErrorKind::kInvalidRequest;
  const bj::object* entry = value.if_object();
  if (!entry) fail_tensor(kBad, file, name, "its header entry is not an object");
  const bj::value* dtype = entry->if_contains("dtype");
  if (!dtype || !dtype->is_string()) {
    fail_tensor(kBad, file, name, "dtype is missing or not a string");
  }
  TensorView tensor{.name = std::string(name), .type = {}, .shape = {}, .bytes = {}};
  tensor.type = tensor_type(std::string_view(dtype->get_string()), file, name);
  for (const bj::value& dim : array_field(*entry, "shape", file, name)) {
    tensor.shape.push_back(natural(dim, "shape", file, name));
  }

  const bj::array& offsets = array_field(*entry, "data_offsets", file, name);
  if (offsets.size() != 2) {
    fail_tensor(kBad, file, name, "data_offsets has {} elements, not 2", offsets.size());
  }
  const int64_t begin = natural(offsets[0], "data_offsets", file, name);
  const int64_t end = natural(offsets[1], "data_offsets", file, name);
  if (begin > end) {
    fail_tensor(kBad, file, name, "data_offsets [{}, {}) are reversed", begin, end);
  }
  if (static_cast<uint64_t>(end) > data.size()) {
    fail_tensor(kBad, file, name, "data_offsets [{}, {}) leave the file, which has {} data bytes",
                begin, end, data.size());
  }
  const std::optional<int64_t> size = stored_bytes(tensor.type, tensor.shape);
  if (!size) {
    fail_tensor(kBad, file, name, "the size of shape {} overflows", shape_text(tensor.shape));
  }
  if (*size != end - begin) {
    fail_tensor(kBad, file, name, "{} {} takes {} bytes, but data_offsets [{}, {}) hold {}",
                info(tensor.type).name, shape_text(tensor.shape), *size, begin, end, end - begin);
  }
  tensor.bytes = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  return tensor;
}

std::map<std::string, std::string> read_metadata(const bj::value& value, std::string_view file) {
  if (value.is_null()) return {};  // what MLX writes when there is none
  const bj::object* entries = value.if_object();
  if (!entries) fail(ErrorKind::kInvalidRequest, "{}: __metadata__ is not an object", file);
  std::map<std::string, std::string> metadata;
  for (const bj::key_value_pair& entry : *entries) {
    if (!entry.value().is_string()) {
      fail(ErrorKind::kInvalidRequest, "{}: __metadata__ entry {} is not a string", file,
           printable(entry.key()));
    }
    metadata.emplace(entry.key(), entry.value().get_string());
  }
  return metadata;
}

// The format wants every data byte to belong to exactly one tensor.
void check_layout(const std::vector<TensorView>& tensors, std::span<const std::byte> data,
                  std::string_view file) {
  const std::byte* place = data.data();
  for (const TensorView* tensor : by_place(tensors, file)) {
    if (tensor->bytes.data() > place) {
      fail_tensor(ErrorKind::kInvalidRequest, file, tensor->name,
                  "there is a hole of {} bytes before its data", tensor->bytes.data() - place);
    }
    place = tensor->bytes.data() + tensor->bytes.size();
  }
  const auto unused = static_cast<size_t>(data.data() + data.size() - place);
  if (unused > 0) {
    fail(ErrorKind::kInvalidRequest, "{}: {} bytes at the end belong to no tensor", file, unused);
  }
}

}  // namespace

SafetensorsIndex SafetensorsIndex::parse(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() < kLengthBytes) {
    fail(ErrorKind::kInvalidRequest, "{}: {} bytes are too few for a safetensors file", file,
         bytes.size());
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes) {
    fail(ErrorKind::kInvalidRequest, "{}: a header of {} bytes exceeds the limit of {}", file,
         header_bytes, kMaxHeaderBytes);
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    fail(ErrorKind::kInvalidRequest, "{}: a header of {} bytes does not fit the file of {}", file,
         header_bytes, bytes.size());
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                                header_bytes);
  if (!header.starts_with('{')) {
    fail(ErrorKind::kInvalidRequest, "{}: the header does not start with {{", file);
  }
  const bj::object entries = parse_json_object(header, fmt::format("{}: header", file),
                                               {.max_depth = kMaxHeaderDepth, .unique_keys = true});

  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header_bytes);
  SafetensorsIndex index;
  for (const bj::key_value_pair& entry : entries) {
    if (entry.key() == "__metadata__") {
      index.metadata = read_metadata(entry.value(), file);
    } else {
      index.tensors.push_back(read_tensor(entry.key(), entry.value(), data, file));
    }
  }
  check_layout(index.tensors, data, file);
  return index;
}

}  // namespace cohort::model
