#include "tests/support/crowd.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace cohort::test {

namespace mx = mlx::core;
using model::TokenGroup;

std::vector<int32_t> random_ids(const model::Model& model, size_t length, std::mt19937& random,
                                std::span<const int32_t> begin) {
  std::vector<int32_t> ids(begin.begin(), begin.end());
  const auto vocab = static_cast<uint32_t>(model.shape().vocab_size);
  while (ids.size() < length) ids.push_back(static_cast<int32_t>(random() % vocab));
  return ids;
}

KnownRow known_row(model::Model& model, kernels::cpu::Cpu& cpu, std::string name,
                   kv::RowPrecision precision, std::vector<int32_t> ids) {
  KnownRow row{std::move(name), std::move(precision), std::move(ids), {}};
  const auto length = static_cast<int64_t>(row.ids.size());
  kv::KvMemory memory(model.shape().layers);
  kv::RowCache cache = memory.new_row(row.precision);
  while (cache.offset() < length) {
    const auto rest = std::span(row.ids).subspan(static_cast<size_t>(cache.offset()));
    const auto count = std::min(cache.max_append_tokens(), static_cast<int64_t>(rest.size()));
    const TokenGroup group{rest.first(static_cast<size_t>(count)), cache};
    std::vector<int32_t> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<int32_t>(i));
    mx::array y = model.project(model.forward({&group, 1}, nullptr), std::move(all));
    y.eval();
    row.logits.insert(row.logits.end(), y.data<float>(), y.data<float>() + y.size());
    cache.commit(count);
    cache.maintain(cpu);
  }
  return row;
}

CrowdEvents& CrowdEvents::operator+=(const CrowdEvents& more) {
  repeats += more.repeats;
  cuts += more.cuts;
  clones += more.clones;
  turns += more.turns;
  changes += more.changes;
  return *this;
}

size_t Crowd::Walker::step(size_t chunk) const {
  const size_t wanted = at() < prompt ? std::min(chunk, prompt - at()) : 1;
  return std::min(wanted, static_cast<size_t>(cache.max_append_tokens()));
}

Crowd::Walker Crowd::walker(const KnownRow* row, kv::RowCache cache) {
  return {row, row->ids.size() - random_() % 9 % row->ids.size(), std::move(cache)};
}

/// Every row once, in any order, then again.
const KnownRow* Crowd::next_row() {
  const size_t place = taken_++ % rows_.size();
  if (place == 0) {
    order_.clear();
    for (const KnownRow& row : rows_) order_.push_back(&row);
    std::shuffle(order_.begin(), order_.end(), random_);
  }
  return order_[place];
}

void Crowd::run(size_t count, size_t chunk, CrowdEvents events) {
  left_ = events;
  for (size_t i = 0; i < count; ++i) {
    const KnownRow* row = next_row();
    walkers_.push_back(walker(row, memory_.new_row(row->precision)));
  }
  while (!walkers_.empty()) {
    const std::vector<Walker*> moving = some();
    feed(moving, chunk);
    check_memory();
    if (testing::Test::HasFatalFailure()) return;
    for (Walker* one : moving) disturb(*one);
    std::erase_if(walkers_, [](const Walker& one) { return one.left() == 0; });
  }
  EXPECT_EQ(memory_.pools().used_bytes(), 0U);
}

std::vector<Crowd::Walker*> Crowd::some() {
  std::vector<Walker*> moving;
  for (Walker& one : walkers_) {
    if (random_() % 3 != 0) moving.push_back(&one);
  }
  if (moving.empty()) moving.push_back(&walkers_.front());
  std::shuffle(moving.begin(), moving.end(), random_);
  return moving;
}

void Crowd::feed(const std::vector<Walker*>& moving, size_t chunk) {
  std::vector<TokenGroup> groups;
  std::vector<int32_t> asked;                           // positions in the pack
  std::vector<std::pair<const Walker*, size_t>> whose;  // of the asked ones: row, position there
  int32_t packed = 0;
  for (Walker* one : moving) {
    const size_t count = one->step(chunk);
    groups.push_back({std::span(one->known->ids).subspan(one->at(), count), one->cache});
    for (size_t i = 0; i < count; ++i, ++packed) {
      if (i + 1 < count && random_() % 4 != 0) continue;
      asked.push_back(packed);
      whose.emplace_back(one, one->at() + i);
    }
  }
  mx::array y = model_.project(model_.forward(groups, nullptr), asked);
  y.eval();
  SCOPED_TRACE(fmt::format("{} rows and {} tokens in the forward", moving.size(), packed));
  const auto vocab = static_cast<size_t>(model_.shape().vocab_size);
  for (size_t i = 0; i < whose.size(); ++i) {
    expect_known(*whose[i].first, whose[i].second, y.data<float>() + i * vocab);
    if (testing::Test::HasFatalFailure()) return;
  }
  if (draw(left_.repeats)) {
    ++seen_.repeats;
    return;
  }
  for (size_t i = 0; i < moving.size(); ++i) commit(*moving[i], groups[i].ids.size());
}

void Crowd::expect_known(const Walker& walker, size_t position, const float* logits) {
  const auto vocab = static_cast<size_t>(model_.shape().vocab_size);
  ASSERT_EQ(
      0, std::memcmp(logits, walker.known->logits.data() + position * vocab, vocab * sizeof(float)))
      << walker.known->name << ", " << walker.known->ids.size() << " tokens, position " << position;
}

void Crowd::commit(Walker& walker, size_t tokens) {
  walker.cache.commit(static_cast<int64_t>(tokens));
  const bool pending = walker.cache.max_append_tokens() != kv::kNoLimit;
  walker.cache.maintain(cpu_);
  seen_.changes += pending && walker.cache.max_append_tokens() == kv::kNoLimit;
}

void Crowd::disturb(Walker& one) {
  if (draw(left_.clones)) {
    walkers_.push_back(walker(any_continuation(one), one.cache.clone()));
    ++seen_.clones;
  }
  const int64_t least = std::max(one.cache.trim_floor(), one.cache.minimum_reusable_offset());
  if (least < one.cache.offset() && draw(left_.cuts)) {
    const auto range = static_cast<uint64_t>(one.cache.offset() - least);
    one.cache.trim(least + static_cast<int64_t>(random_() % range));
    const KnownRow* next = any_continuation(one);
    one = walker(next, std::move(one.cache));
    ++seen_.cuts;
  }
}

/// A known row that begins with what this one has so far.
const KnownRow* Crowd::any_continuation(const Walker& one) {
  std::vector<const KnownRow*> fit;
  for (const KnownRow& row : rows_) {
    const bool longer = row.ids.size() > one.at() || &row == one.known;
    if (longer && row.precision == one.known->precision &&
        std::equal(row.ids.begin(), row.ids.begin() + static_cast<ptrdiff_t>(one.at()),
                   one.known->ids.begin())) {
      fit.push_back(&row);
    }
  }
  const KnownRow* chosen = fit[random_() % fit.size()];
  seen_.turns += chosen != one.known;
  return chosen;
}

void Crowd::check_memory() {
  kv::BlockCensus census;
  for (const Walker& one : walkers_) one.cache.check_integrity(census);
  memory_.pools().check_integrity(census);
}

/// Now and then true, as often as the budget lets it be.
bool Crowd::draw(size_t& budget) {
  if (budget == 0 || random_() % 8 != 0) return false;
  --budget;
  return true;
}

}  // namespace cohort::test
