#include "kv/record.h"

#include <algorithm>
#include <cstring>

#include "base/json.h"
#include "base/printable.h"

namespace cohort::kv {
namespace {

namespace bj = boost::json;

constexpr std::string_view kMagic = "COHORTKV";
constexpr uint32_t kVersion = 1;
/// Bounds what a hostile length can make a reader allocate.
constexpr size_t kMostHeadBytes = size_t{64} << 20;
constexpr size_t kDigestBytes = 64;
constexpr size_t kAlignment = 64;
constexpr size_t kMostDimensions = 8;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Bytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

uint32_t read_u32(Bytes bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Bytes of a tensor; nullopt if they are no number.
std::optional<size_t> size_of(const TensorSpec& spec) {
  uint64_t bytes = info(spec.type).bytes;
  for (const int64_t dim : spec.shape) {
    const auto count = std::max<uint64_t>(static_cast<uint64_t>(dim), 1);
    if (bytes > (uint64_t{1} << 62) / count) return {};
    bytes *= count;
  }
  return std::ranges::count(spec.shape, 0) > 0 ? 0 : bytes;
}

}  // namespace

RecordWriter::RecordWriter(bj::object header, std::vector<TensorSpec> tensors)
    : tensors_(std::move(tensors)) {
  bj::array list;
  size_t offset = 0;
  for (const TensorSpec& spec : tensors_) {
    list.push_back({{"name", spec.name},
                    {"dtype", info(spec.type).name},
                    {"shape", bj::value_from(spec.shape)},
                    {"offset", offset},
                    {"bytes", spec.bytes()}});
    offset += aligned(spec.bytes());
  }
  header["tensors"] = std::move(list);
  std::string text = bj::serialize(header);
  constexpr size_t kPrefix = RecordHead::kPrefixBytes;
  text.resize(aligned(kPrefix + text.size()) - kPrefix, ' ');
  if (text.size() > kMostHeadBytes - kPrefix) {
    fail(ErrorKind::kUnsupported, "KV record: a header of {} bytes is too long", text.size());
  }
  const uint32_t numbers[] = {kVersion, static_cast<uint32_t>(text.size())};
  head_.append(kMagic);
  head_.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  head_.append(text);
  bytes_ = head_.size() + offset + kDigestBytes;
}

void RecordWriter::write(const Elements& elements, const Sink& sink) const {
  constexpr std::byte zeros[kAlignment] = {};
  Sha256 sha256;
  size_t written = 0;
  const Sink hashed = [&](Bytes bytes) {
    written += bytes.size();
    sha256.update(bytes);
    sink(bytes);
  };
  hashed(bytes_of(head_));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const size_t bytes = tensors_[i].bytes();
    written = 0;
    elements(i, hashed);
    check(written == bytes, "a tensor is as long as its shape says");
    hashed(Bytes(zeros).first(aligned(bytes) - bytes));
  }
  sink(bytes_of(sha256.hex()));
}

size_t RecordHead::bytes(Bytes first_16, size_t record_bytes) {
  if (!std::ranges::equal(first_16.first(kMagic.size()), bytes_of(kMagic))) {
    refuse("it does not begin with {}", kMagic);
  }
  const uint32_t version = read_u32(first_16, kMagic.size());
  if (version != kVersion) refuse("it has version {}, this program {}", version, kVersion);
  const size_t bytes = kPrefixBytes + read_u32(first_16, kMagic.size() + sizeof version);
  if (record_bytes < kDigestBytes || bytes > record_bytes - kDigestBytes ||
      bytes % kAlignment != 0 || bytes > kMostHeadBytes) {
    refuse("a header of {} bytes does not fit into {}", bytes - kPrefixBytes, record_bytes);
  }
  return bytes;
}

RecordHead::RecordHead(Bytes head, size_t record_bytes) {
  const auto* text = reinterpret_cast<const char*>(head.data());
  const std::string_view json(text + kPrefixBytes, head.size() - kPrefixBytes);
  header_ = parse_json_object(json, "KV record", {.max_depth = 32, .unique_keys = true});
  read_tensors(field(header_, "tensors", bj::kind::array),
               record_bytes - head.size() - kDigestBytes);
  about_ = field(header_, "about", bj::kind::object).get_object();
  header_.erase("tensors");
  header_.erase("about");
}

const bj::value& RecordHead::field(const bj::object& object, std::string_view key, bj::kind kind) {
  const bj::value* value = object.if_contains(key);
  if (value == nullptr || value->kind() != kind) {
    refuse("\"{}\" is {}, not of kind {}", key,
           value != nullptr ? printable(bj::serialize(*value)) : "missing", bj::to_string(kind));
  }
  return *value;
}

size_t RecordHead::natural(const bj::value& value) {
  if (!value.is_int64() || value.get_int64() < 0) {
    refuse("{} stands for a size", printable(bj::serialize(value)));
  }
  return static_cast<size_t>(value.get_int64());
}

TensorSpec RecordHead::read_spec(const bj::object& entry) {
  TensorSpec spec;
  spec.name = field(entry, "name", bj::kind::string).get_string();
  const std::string_view dtype = field(entry, "dtype", bj::kind::string).get_string();
  const auto type = std::ranges::find(kSavedTypes, dtype, &SavedTypeInfo::name);
  if (type == std::end(kSavedTypes)) {
    refuse("tensor {} has the unknown dtype {}", printable(spec.name), printable(dtype));
  }
  spec.type = type->type;
  const bj::array& shape = field(entry, "shape", bj::kind::array).get_array();
  if (shape.size() > kMostDimensions) {
    refuse("tensor {} has {} dimensions", printable(spec.name), shape.size());
  }
  for (const bj::value& dim : shape) spec.shape.push_back(static_cast<int64_t>(natural(dim)));
  return spec;
}

void RecordHead::read_tensors(const bj::value& list, size_t data_bytes) {
  size_t end = 0;
  for (const bj::value& value : list.get_array()) {
    if (!value.is_object()) refuse("tensor {} is no object", tensors_.size());
    const bj::object& entry = value.get_object();
    TensorSpec spec = read_spec(entry);
    const size_t offset = natural(field(entry, "offset", bj::kind::int64));
    const size_t bytes = natural(field(entry, "bytes", bj::kind::int64));
    if (size_of(spec) != bytes) refuse("tensor {} does not take {} bytes", words(spec), bytes);
    if (offset != end || bytes > data_bytes - end || aligned(bytes) > data_bytes - end) {
      refuse("tensor {}: {} bytes at {} are not the next of {}", words(spec), bytes, offset,
             data_bytes);
    }
    tensors_.push_back(std::move(spec));
    end += aligned(bytes);
  }
  if (end != data_bytes) refuse("{} bytes belong to no tensor", data_bytes - end);
}

RecordReader::RecordReader(size_t bytes, Source source) : source_(std::move(source)) {
  constexpr size_t kPrefix = RecordHead::kPrefixBytes;
  if (bytes < kPrefix + kDigestBytes) {
    fail(ErrorKind::kInvalidRequest, "KV record: {} bytes are no record", bytes);
  }
  std::vector<std::byte> head(kPrefix);
  take(head);
  head.resize(RecordHead::bytes(head, bytes));
  take(std::span(head).subspan(kPrefix));
  head_.emplace(head, bytes);
}

void RecordReader::take(std::span<std::byte> bytes) {
  source_(bytes);
  sha256_.update(bytes);
}

void RecordReader::read(const Elements& elements) {
  size_t taken = 0;
  const Source counted = [&](std::span<std::byte> piece) {
    taken += piece.size();
    take(piece);
  };
  std::byte padding[kAlignment];
  for (size_t i = 0; i < head_->tensors().size(); ++i) {
    const size_t bytes = head_->tensors()[i].bytes();
    taken = 0;
    elements(i, counted);
    check(taken == bytes, "a tensor is as long as its shape says");
    take(std::span(padding).first(aligned(bytes) - bytes));
  }
  std::byte digest[kDigestBytes];
  source_(digest);
  if (!std::ranges::equal(digest, bytes_of(sha256_.hex()))) {
    fail(ErrorKind::kInvalidRequest, "KV record: its checksum is wrong: it was cut or changed");
  }
}

void RecordReader::verify() {
  std::vector<std::byte> buffer(1 << 20);
  read([&](size_t tensor, const Source& source) {
    for (size_t left = head_->tensors()[tensor].bytes(); left > 0;) {
      const auto piece = std::span(buffer).first(std::min(left, buffer.size()));
      source(piece);
      left -= piece.size();
    }
  });
}

}  // namespace cohort::kv
