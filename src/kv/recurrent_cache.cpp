#include "kv/recurrent_cache.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "kernels/cpu/kv_block.h"

namespace cohort::kv {

RecurrentCache::RecurrentCache(const RecurrentSpec& spec)
    : spec_(spec), current_(std::make_shared<RecurrentState>(sized(0))) {}

RecurrentState RecurrentCache::sized(int64_t offset) const {
  return {std::vector<float>(spec_.conv_floats()), std::vector<float>(spec_.state_floats()),
          std::vector<float>(spec_.open_floats(offset))};
}

std::string RecurrentCache::signature() const {
  return fmt::format("ssm:conv{}x{}:state{}x{}x{}:open{}", spec_.conv_tokens, spec_.conv_channels,
                     spec_.heads, spec_.key_dim, spec_.value_dim, spec_.open_width);
}

void RecurrentCache::reserve(int64_t tokens) {
  next_ = std::make_shared<RecurrentState>(sized(offset_ + tokens));
}

void RecurrentCache::commit(int64_t tokens) noexcept {
  offset_ += tokens;
  if (tokens > 0) current_ = std::move(next_);
  next_.reset();
}

void RecurrentCache::trim(int64_t offset) {
  check(offset == offset_, "recurrent state is not cut");
}

std::unique_ptr<LayerCache> RecurrentCache::clone() const {
  auto copy = std::make_unique<RecurrentCache>(*this);
  copy->next_.reset();
  return copy;
}

std::vector<std::span<const std::byte>> RecurrentCache::arrays() const {
  return {std::as_bytes(std::span(current_->conv)), std::as_bytes(std::span(current_->state)),
          std::as_bytes(std::span(current_->open))};
}

void RecurrentCache::restore(int64_t offset, int64_t) {
  check(offset_ == 0, "only an empty cache is restored");
  current_ = std::make_shared<RecurrentState>(sized(offset));
  offset_ = offset;
}

void RecurrentCache::check_integrity(BlockCensus&) const {
  check(current_->open.size() == sized(offset_).open.size(), "the open block ends at the offset");
}

}  // namespace cohort::kv
