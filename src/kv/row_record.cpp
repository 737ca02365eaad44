#include "kv/row_record.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace cohort::kv {
namespace {

namespace bj = boost::json;

/// Where the tensors of a record belong: a cache and the tensor's place in it.
using Slots = std::vector<std::pair<size_t, size_t>>;

template <class Caches>
Slots slots_of(const Caches& caches) {
  Slots slots;
  for (size_t cache = 0; cache < caches.size(); ++cache) {
    for (size_t i = 0; i < caches[cache].tensors().size(); ++i) slots.emplace_back(cache, i);
  }
  return slots;
}

/// Hands out bytes in memory.
Source source_of(Bytes bytes) {
  return [rest = bytes](std::span<std::byte> piece) mutable {
    // An empty array may have no address.
    if (!piece.empty()) std::memcpy(piece.data(), rest.data(), piece.size());
    rest = rest.subspan(piece.size());
  };
}

RowHead verified(Bytes bytes) {
  RecordReader record(bytes.size(), source_of(bytes));
  record.verify();
  return RowHead(record.head());
}

}  // namespace

RowWriter::RowWriter(const RowCache& row, CacheForm form, const bj::object& about) {
  bj::array headers;
  std::vector<TensorSpec> tensors;
  for (size_t i = 0; i < row.layers(); ++i) {
    const SavedCache& cache = caches_.emplace_back(row.layer(i), form);
    headers.push_back(cache.header(tensors.size()));
    tensors.insert(tensors.end(), cache.tensors().begin(), cache.tensors().end());
  }
  record_.emplace(bj::object{{"about", about}, {"caches", std::move(headers)}}, std::move(tensors));
}

void RowWriter::write(const Sink& sink) const {
  const Slots slots = slots_of(caches_);
  const auto elements = [&](size_t tensor, const Sink& out) {
    const auto [cache, i] = slots[tensor];
    caches_[cache].write(i, out);
  };
  record_->write(elements, sink);
}

RowHead::RowHead(const RecordHead& head) : RecordHead(head) {
  size_t next_slot = 0, caches = 0;
  for (const bj::value& value : field(header_, "caches", bj::kind::array).get_array()) {
    if (!value.is_object()) refuse("cache {} is no object", caches);
    const bj::object& cache = value.get_object();
    const auto offset = static_cast<int64_t>(natural(field(cache, "offset", bj::kind::int64)));
    if (caches == 0) offset_ = offset;
    if (offset != offset_) refuse("cache {} is at {}, not {}", caches, offset, offset_);
    for (const bj::value& slot : field(cache, "tensors", bj::kind::array).get_array()) {
      if (natural(slot) != next_slot++) refuse("cache {} shares tensors", caches);
    }
    ++caches;
  }
  if (next_slot != tensors().size()) {
    refuse("its caches have {} tensors of {}", next_slot, tensors().size());
  }
}

std::vector<LoadedCache> RowHead::caches_for(RowCache& row) const {
  const bj::array& caches = header_.at("caches").get_array();
  if (caches.size() != row.layers()) {
    refuse("it has {} layers, this model {}", caches.size(), row.layers());
  }
  std::vector<LoadedCache> found;
  for (size_t i = 0; i < caches.size(); ++i) {
    const std::string what = fmt::format("KV record: layer {}", i);
    found.emplace_back(caches[i].get_object(), tensors(), row.layer(i), what);
  }
  return found;
}

void RowHead::restore(RowCache& row) const {
  const std::vector<LoadedCache> caches = caches_for(row);
  for (size_t i = 0; i < caches.size(); ++i) {
    row.layer(i).restore(caches[i].offset(), caches[i].minimum_reusable_offset());
  }
}

void RowHead::fill(RowCache& row, RecordReader& record) const {
  const std::vector<LoadedCache> caches = caches_for(row);
  for (size_t i = 0; i < caches.size(); ++i) {
    if (row.layer(i).offset() != caches[i].offset() ||
        row.layer(i).minimum_reusable_offset() != caches[i].minimum_reusable_offset()) {
      refuse("layer {} was restored at {}, not {}", i, row.layer(i).offset(), caches[i].offset());
    }
  }
  const Slots slots = slots_of(caches);
  record.read([&](size_t tensor, const Source& source) {
    const auto [cache, i] = slots[tensor];
    caches[cache].read(i, source);
  });
}

RowRecord::RowRecord(Bytes bytes) : bytes_(bytes), head_(verified(bytes)) {}

RowCache RowRecord::restore(KvMemory& memory, const RowPrecision& precision) const {
  RowCache row = memory.new_row(precision);
  head_.restore(row);
  RecordReader record(bytes_.size(), source_of(bytes_));
  head_.fill(row, record);
  return row;
}

}  // namespace cohort::kv
