#include "kv/row_record.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
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

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::kInvalidRequest, "KV record: {}",
       fmt::format(format, std::forward<Args>(args)...));
}

const bj::value& field(const bj::object& object, std::string_view key, bj::kind kind) {
  const bj::value* value = object.if_contains(key);
  if (value == nullptr || value->kind() != kind) {
    refuse("\"{}\" is {}, not of kind {}", key,
           value != nullptr ? printable(bj::serialize(*value)) : "missing", bj::to_string(kind));
  }
  return *value;
}

size_t natural(const bj::value& value) {
  if (!value.is_int64() || value.get_int64() < 0) {
    refuse("{} stands for a size", printable(bj::serialize(value)));
  }
  return static_cast<size_t>(value.get_int64());
}

uint32_t read_u32(Bytes bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

void expect_digest(Bytes found, Sha256& sha256) {
  if (std::ranges::equal(found, bytes_of(sha256.hex()))) return;
  refuse("its checksum is wrong: it was cut or changed");
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

TensorSpec read_spec(const bj::object& entry) {
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

}  // namespace

RowWriter::RowWriter(const RowCache& row, CacheForm form, const bj::object& about) {
  bj::array caches, tensors;
  size_t offset = 0;
  for (size_t i = 0; i < row.layers(); ++i) {
    caches_.emplace_back(row.layer(i), form);
    caches.push_back(caches_.back().header(tensors.size()));
    for (const TensorSpec& spec : caches_.back().tensors()) {
      tensors.push_back({{"name", spec.name},
                         {"dtype", info(spec.type).name},
                         {"shape", bj::value_from(spec.shape)},
                         {"offset", offset},
                         {"bytes", spec.bytes()}});
      offset += aligned(spec.bytes());
    }
  }
  std::string header = bj::serialize(
      bj::object{{"about", about}, {"caches", std::move(caches)}, {"tensors", std::move(tensors)}});
  constexpr size_t kPrefix = RowHead::kPrefixBytes;
  header.resize(aligned(kPrefix + header.size()) - kPrefix, ' ');
  if (header.size() > kMostHeadBytes - kPrefix) {
    fail(ErrorKind::kUnsupported, "KV record: a header of {} bytes is too long", header.size());
  }
  const uint32_t numbers[] = {kVersion, static_cast<uint32_t>(header.size())};
  head_.append(kMagic);
  head_.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  head_.append(header);
  bytes_ = head_.size() + offset + kDigestBytes;
}

void RowWriter::write(const Sink& sink) const {
  constexpr std::byte zeros[kAlignment] = {};
  Sha256 sha256;
  const Sink hashed = [&](Bytes bytes) {
    sha256.update(bytes);
    sink(bytes);
  };
  hashed(bytes_of(head_));
  for (const SavedCache& cache : caches_) {
    for (size_t i = 0; i < cache.tensors().size(); ++i) {
      const size_t bytes = cache.tensors()[i].bytes();
      size_t written = 0;
      cache.write(i, [&](Bytes piece) {
        written += piece.size();
        hashed(piece);
      });
      check(written == bytes, "a tensor is as long as its shape says");
      hashed(Bytes(zeros).first(aligned(bytes) - bytes));
    }
  }
  sink(bytes_of(sha256.hex()));
}

size_t RowHead::bytes(Bytes first_16, size_t record_bytes) {
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

RowHead::RowHead(Bytes head, size_t record_bytes) {
  const auto* text = reinterpret_cast<const char*>(head.data());
  const std::string_view json(text + kPrefixBytes, head.size() - kPrefixBytes);
  bj::object header = parse_json_object(json, "KV record", {.max_depth = 32, .unique_keys = true});
  read_tensors(field(header, "tensors", bj::kind::array),
               record_bytes - head.size() - kDigestBytes);
  read_caches(field(header, "caches", bj::kind::array));
  about_ = field(header, "about", bj::kind::object).get_object();
}

void RowHead::read_tensors(const bj::value& list, size_t data_bytes) {
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

void RowHead::read_caches(const bj::value& list) {
  size_t next_slot = 0;
  for (const bj::value& value : list.get_array()) {
    if (!value.is_object()) refuse("cache {} is no object", caches_.size());
    const bj::object& header = value.get_object();
    const auto offset = static_cast<int64_t>(natural(field(header, "offset", bj::kind::int64)));
    if (caches_.empty()) offset_ = offset;
    if (offset != offset_) refuse("cache {} is at {}, not {}", caches_.size(), offset, offset_);
    for (const bj::value& slot : field(header, "tensors", bj::kind::array).get_array()) {
      if (natural(slot) != next_slot++) refuse("cache {} shares tensors", caches_.size());
    }
    caches_.push_back(header);
  }
  if (next_slot != tensors_.size()) {
    refuse("its caches have {} tensors of {}", next_slot, tensors_.size());
  }
}

std::vector<LoadedCache> RowHead::caches_for(RowCache& row) const {
  if (caches_.size() != row.layers()) {
    refuse("it has {} layers, this model {}", caches_.size(), row.layers());
  }
  std::vector<LoadedCache> found;
  for (size_t i = 0; i < caches_.size(); ++i) {
    const std::string what = fmt::format("KV record: layer {}", i);
    found.emplace_back(caches_[i], tensors_, row.layer(i), what);
  }
  return found;
}

void RowHead::restore(RowCache& row) const {
  const std::vector<LoadedCache> caches = caches_for(row);
  for (size_t i = 0; i < caches.size(); ++i) {
    row.layer(i).restore(caches[i].offset(), caches[i].minimum_reusable_offset());
  }
}

void RowHead::fill(RowCache& row, const Source& source) const {
  const std::vector<LoadedCache> caches = caches_for(row);
  for (size_t i = 0; i < caches.size(); ++i) {
    if (row.layer(i).offset() != caches[i].offset() ||
        row.layer(i).minimum_reusable_offset() != caches[i].minimum_reusable_offset()) {
      refuse("layer {} was restored at {}, not {}", i, row.layer(i).offset(), caches[i].offset());
    }
  }
  std::byte padding[kAlignment];
  for (const LoadedCache& cache : caches) {
    for (size_t i = 0; i < cache.tensors().size(); ++i) {
      const size_t bytes = cache.tensors()[i].bytes();
      size_t read = 0;
      cache.read(i, [&](std::span<std::byte> piece) {
        read += piece.size();
        source(piece);
      });
      check(read == bytes, "a tensor is as long as its shape says");
      source(std::span(padding).first(aligned(bytes) - bytes));
    }
  }
}

RowRecord::RowRecord(Bytes bytes) {
  constexpr size_t kPrefix = RowHead::kPrefixBytes;
  if (bytes.size() < kPrefix + kDigestBytes) refuse("{} bytes are no record", bytes.size());
  const size_t head_bytes = RowHead::bytes(bytes.first(kPrefix), bytes.size());
  const Bytes body = bytes.first(bytes.size() - kDigestBytes);
  Sha256 sha256;
  sha256.update(body);
  expect_digest(bytes.last(kDigestBytes), sha256);
  head_.emplace(bytes.first(head_bytes), bytes.size());
  tensors_ = body.subspan(head_bytes);
}

RowCache RowRecord::restore(KvMemory& memory, const RowPrecision& precision) const {
  RowCache row = memory.new_row(precision);
  head_->restore(row);
  Bytes rest = tensors_;
  head_->fill(row, [&](std::span<std::byte> piece) {
    // An empty array may have no address.
    if (!piece.empty()) std::memcpy(piece.data(), rest.data(), piece.size());
    rest = rest.subspan(piece.size());
  });
  return row;
}

RowReader::RowReader(size_t bytes, Source source) : source_(std::move(source)) {
  constexpr size_t kPrefix = RowHead::kPrefixBytes;
  if (bytes < kPrefix + kDigestBytes) refuse("{} bytes are no record", bytes);
  std::vector<std::byte> head(kPrefix);
  take(head);
  head.resize(RowHead::bytes(head, bytes));
  take(std::span(head).subspan(kPrefix));
  head_.emplace(head, bytes);
  tensor_bytes_ = bytes - head.size() - kDigestBytes;
}

void RowReader::take(std::span<std::byte> bytes) {
  source_(bytes);
  sha256_.update(bytes);
}

void RowReader::check_digest() {
  std::byte digest[kDigestBytes];
  source_(digest);
  expect_digest(digest, sha256_);
}

void RowReader::fill(RowCache& row) {
  head_->fill(row, [&](std::span<std::byte> piece) { take(piece); });
  check_digest();
}

void RowReader::verify() {
  std::vector<std::byte> buffer(1 << 20);
  for (size_t left = tensor_bytes_; left > 0;) {
    const auto piece = std::span(buffer).first(std::min(left, buffer.size()));
    take(piece);
    left -= piece.size();
  }
  check_digest();
}

}  // namespace cohort::kv
