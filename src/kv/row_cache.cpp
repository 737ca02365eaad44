#include "kv/row_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace cohort::kv {

void RowCache::reserve(int64_t tokens) {
  for (auto& layer : layers_) layer->reserve(tokens);
}

void RowCache::commit(int64_t tokens) noexcept {
  for (auto& layer : layers_) layer->commit(tokens);
}

int64_t RowCache::max_append_tokens() const {
  int64_t least = kNoLimit;
  for (const auto& layer : layers_) least = std::min(least, layer->max_append_tokens());
  return least;
}

void RowCache::maintain(kernels::cpu::Cpu& cpu) {
  for (auto& layer : layers_) layer->maintain(cpu);
}

int64_t RowCache::trim_floor() const {
  int64_t floor = 0;
  for (const auto& layer : layers_) floor = std::max(floor, layer->trim_floor());
  return floor;
}

void RowCache::trim(int64_t offset) {
  check(offset >= trim_floor() && offset <= this->offset(), "a row is cut where it can be cut");
  for (auto& layer : layers_) layer->trim(offset);
}

int64_t RowCache::minimum_reusable_offset() const {
  int64_t most = 0;
  for (const auto& layer : layers_) most = std::max(most, layer->minimum_reusable_offset());
  return most;
}

void RowCache::restore(int64_t offset, int64_t minimum_reusable_offset) {
  for (auto& layer : layers_) layer->restore(offset, minimum_reusable_offset);
}

RowCache RowCache::clone() const {
  std::vector<std::unique_ptr<LayerCache>> copies;
  for (const auto& layer : layers_) copies.push_back(layer->clone());
  return RowCache(std::move(copies));
}

size_t RowCache::bytes_per_token() const {
  size_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer->bytes_per_token();
  return bytes;
}

void RowCache::check_integrity(BlockCensus& census) const {
  for (const auto& layer : layers_) {
    check(layer->offset() == offset(), "the layers of a row are at one offset");
    layer->check_integrity(census);
  }
}

KvMemory::KvMemory(std::vector<AnyLayerSpec> layers, size_t most_bytes,
                   kernels::cpu::BlockCopy copy)
    : layers_(std::move(layers)), pools_(most_bytes, std::move(copy)) {}

RowCache KvMemory::new_row(const RowPrecision& precision) {
  check(precision.size() == layers_.size(), "a row's precision names every layer");
  std::vector<std::unique_ptr<LayerCache>> caches;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (const auto* attention = std::get_if<LayerSpec>(&layers_[i])) {
      caches.push_back(std::make_unique<AttentionCache>(*attention, precision[i], pools_));
    } else {
      caches.push_back(std::make_unique<RecurrentCache>(std::get<RecurrentSpec>(layers_[i])));
    }
  }
  return RowCache(std::move(caches));
}

}  // namespace cohort::kv
