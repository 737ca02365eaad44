#include "kv/attention_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernels/cpu/cpu.h"

namespace cohort::kv {

using kernels::cpu::kBlockTokens;
using kernels::cpu::KvGeometry;

namespace {

constexpr BlockId kNone = UINT32_MAX;

size_t blocks_for(int64_t tokens) {
  return static_cast<size_t>(kernels::cpu::blocks_for(tokens));
}

/// One block from one encoding to another.
void convert_block(const KvGeometry& from, const std::byte* source, const KvGeometry& to,
                   std::byte* target, int tokens) {
  float key[kernels::cpu::kMaxHeadDim], value[kernels::cpu::kMaxHeadDim];
  for (int head = 0; head < from.kv_heads; ++head) {
    for (int slot = 0; slot < tokens; ++slot) {
      load_kv(from, source, head, slot, key, value);
      store_kv(to, target, head, slot, key, value);
    }
  }
}

/// Blocks that go back in the end.
struct TakenBlocks {
  BlockPool* pool;
  std::vector<BlockId> ids;
  ~TakenBlocks() {
    for (BlockId block : ids) {
      if (block != kNone) pool->release(block);
    }
  }
};

}  // namespace

size_t state_bytes(const LayerCache& cache) {
  size_t bytes = 0;
  for (const auto& array : cache.arrays()) bytes += array.size();
  return bytes;
}

AttentionCache::AttentionCache(const LayerSpec& spec, const LayerPrecision& precision,
                               BlockPools& pools)
    : spec_(spec),
      precision_(precision),
      pools_(&pools),
      pool_(&pools.of(spec.geometry(precision.stored(false)).block_bytes())) {}

AttentionCache::AttentionCache(const AttentionCache& other)
    : LayerCache(other),
      spec_(other.spec_),
      precision_(other.precision_),
      pools_(other.pools_),
      pool_(other.pool_),
      converted_(other.converted_),
      window_front_(other.window_front_) {
  // What is reserved behind the offset stays with the one that reserved it.
  const auto committed = static_cast<ptrdiff_t>(blocks_for(offset_));
  blocks_.assign(other.blocks_.begin(), other.blocks_.begin() + committed);
  addresses_.assign(other.addresses_.begin(), other.addresses_.begin() + committed);
  for (BlockId block : blocks_) {
    if (block != kNone) pool().share(block);
  }
}

AttentionCache::~AttentionCache() {
  drop_from(0);
}

std::string AttentionCache::signature() const {
  std::string name = fmt::format("kv:{}{}{}:{}x{}", precision_.changes() ? "delayed-" : "",
                                 spec_.window > 0 ? "rotating-" : "", words(precision_.then),
                                 spec_.kv_heads, spec_.head_dim);
  if (precision_.changes()) {
    name += fmt::format(":start{}:{}", precision_.start, words(precision_.first));
  }
  if (spec_.window > 0) name += fmt::format(":w{}", spec_.window);
  if (spec_.keep > 0) name += fmt::format(":keep{}", spec_.keep);
  return name;
}

std::unique_ptr<LayerCache> AttentionCache::clone() const {
  return std::unique_ptr<LayerCache>(new AttentionCache(*this));
}

int64_t AttentionCache::max_append_tokens() const {
  return pending() ? precision_.start - offset_ : kNoLimit;
}

void AttentionCache::reserve(int64_t tokens) {
  check(tokens <= max_append_tokens(), "an append stops where the precision changes");
  const size_t needed = blocks_for(offset_ + tokens);
  blocks_.reserve(needed);
  addresses_.reserve(needed);
  while (blocks_.size() < needed) {
    blocks_.push_back(pool().take());
    addresses_.push_back(pool().address(blocks_.back()));
  }
  const auto open = static_cast<size_t>(offset_ / kBlockTokens);
  if (tokens == 0 || offset_ % kBlockTokens == 0 || pool().references(blocks_[open]) == 1) return;
  const BlockId fresh = pool().take();
  pool().copy(blocks_[open], fresh);
  pool().release(blocks_[open]);
  blocks_[open] = fresh;
  addresses_[open] = pool().address(fresh);
}

void AttentionCache::commit(int64_t tokens) noexcept {
  offset_ += tokens;
  drop_from(blocks_for(offset_));
  if (spec_.window == 0) return;
  for (; window_front_ < blocks_.size() && !visible_from(window_front_, offset_); ++window_front_) {
    if (!holds(window_front_, offset_)) drop(window_front_);
  }
}

bool AttentionCache::visible_from(size_t block, int64_t position) const {
  const int64_t end = static_cast<int64_t>(block + 1) * kBlockTokens;
  return spec_.window == 0 || end > position - spec_.window + 1;
}

bool AttentionCache::holds(size_t block, int64_t offset) const {
  const bool kept = static_cast<int64_t>(block) * kBlockTokens < spec_.keep;
  return block < blocks_for(offset) && (kept || visible_from(block, offset));
}

void AttentionCache::drop(size_t index) noexcept {
  if (blocks_[index] == kNone) return;
  pool().release(blocks_[index]);
  blocks_[index] = kNone;
  addresses_[index] = nullptr;
}

void AttentionCache::drop_from(size_t count) noexcept {
  while (blocks_.size() > count) {
    if (blocks_.back() != kNone) pool().release(blocks_.back());
    blocks_.pop_back();
    addresses_.pop_back();
  }
  window_front_ = std::min(window_front_, count);
}

void AttentionCache::maintain(kernels::cpu::Cpu& cpu) {
  if (!pending() || offset_ < precision_.start) return;
  check(offset_ == precision_.start, "the precision changes at one exact offset");
  const KvGeometry from = geometry(false), to = geometry(true);
  TakenBlocks fresh{&pools_->of(to.block_bytes()), std::vector<BlockId>(blocks_.size(), kNone)};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] != kNone) fresh.ids[i] = fresh.pool->take();
  }
  cpu.pool().parallel_for(blocks_.size(), [&](size_t i) {
    if (blocks_[i] == kNone) return;
    const int64_t tokens = offset_ - static_cast<int64_t>(i) * kBlockTokens;
    convert_block(from, addresses_[i], to, fresh.pool->address(fresh.ids[i]),
                  static_cast<int>(std::min<int64_t>(tokens, kBlockTokens)));
  });
  std::swap(pool_, fresh.pool);
  std::swap(blocks_, fresh.ids);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] != kNone) addresses_[i] = pool().address(blocks_[i]);
  }
  converted_ = true;
}

int64_t AttentionCache::trim_floor() const {
  // Of the blocks given back, the last one bounds what the next query may ask for.
  for (size_t i = blocks_.size(); i-- > 0;) {
    if (blocks_[i] == kNone) {
      return std::min(offset_, static_cast<int64_t>(i + 1) * kBlockTokens + spec_.window - 1);
    }
  }
  return 0;
}

void AttentionCache::trim(int64_t offset) {
  check(offset >= trim_floor() && offset <= offset_, "a cache is cut where it can be cut");
  offset_ = offset;
  drop_from(blocks_for(offset));
}

std::vector<std::span<const std::byte>> AttentionCache::arrays() const {
  std::vector<std::span<const std::byte>> found;
  for (const std::byte* address : addresses_) {
    if (address != nullptr) found.emplace_back(address, pool().block_bytes());
  }
  return found;
}

void AttentionCache::restore(int64_t offset, int64_t minimum_reusable_offset) {
  check(blocks_.empty(), "only an empty cache is restored");
  converted_ = precision_.changes() && precision_.start <= minimum_reusable_offset;
  pool_ = &pools_->of(geometry().block_bytes());
  const size_t count = blocks_for(offset);
  blocks_.reserve(count);
  addresses_.reserve(count);
  while (blocks_.size() < count) {
    const bool held = holds(blocks_.size(), offset);
    blocks_.push_back(held ? pool().take() : kNone);
    addresses_.push_back(held ? pool().address(blocks_.back()) : nullptr);
  }
  offset_ = offset;
  while (window_front_ < count && !visible_from(window_front_, offset)) ++window_front_;
}

void AttentionCache::check_integrity(BlockCensus& census) const {
  check(blocks_.size() >= blocks_for(offset_) && blocks_.size() == addresses_.size(),
        "a cache has a block for each of its tokens");
  check(!pending() || offset_ <= precision_.start, "no append passes a change of precision");
  check(pool().block_bytes() == geometry().block_bytes(), "blocks are of the encoding's pool");
  std::vector<uint32_t>& counts = census[pool_];
  if (counts.size() < pool().size()) counts.resize(pool().size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    check(i >= blocks_for(offset_) || holds(i, offset_) == (blocks_[i] != kNone),
          "a cache holds the blocks that queries see, and no other");
    if (blocks_[i] == kNone) {
      check(addresses_[i] == nullptr, "a block that was given back has no address");
      continue;
    }
    check(addresses_[i] == pool().address(blocks_[i]), "addresses are of the blocks");
    ++counts[blocks_[i]];
  }
}

}  // namespace cohort::kv
