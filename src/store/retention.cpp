#include "store/retention.h"

#include "base/error.h"

namespace cohort::store {

size_t Retention::bytes() const {
  size_t bytes = 0;
  for (const Tenant* tenant : tenants_) bytes += tenant->bytes();
  return bytes;
}

EntryId Retention::add(Tenant& owner) {
  uses_[++last_id_] = {&owner, clock_, 0, now_()};
  return last_id_;
}

void Retention::touch(EntryId id) {
  Use& use = uses_.at(id);
  use.last = clock_;
  use.at = now_();
}

void Retention::erase_all(const Tenant& owner) noexcept {
  std::erase_if(uses_, [&](const auto& use) { return use.second.owner == &owner; });
}

void Retention::make_room(EntryId spared) {
  while (bytes() > budget_bytes_ && evict(nullptr, spared)) {
  }
}

bool Retention::evict(const Tenant* owner, EntryId spared) {
  auto victim = uses_.end();
  for (auto each = uses_.begin(); each != uses_.end(); ++each) {
    if (each->first == spared || (owner != nullptr && each->second.owner != owner)) continue;
    if (victim == uses_.end() || each->second.worth() < victim->second.worth()) victim = each;
  }
  if (victim == uses_.end()) return false;
  Tenant& loser = *victim->second.owner;
  loser.remove(victim->first);
  ++loser.evictions_;
  return true;
}

void Retention::drop_unused(Clock::time_point then) {
  std::vector<EntryId> unused;
  for (const auto& [id, use] : uses_) {
    if (use.at < then) unused.push_back(id);
  }
  for (const EntryId id : unused) uses_.at(id).owner->remove(id);
}

void Retention::check_integrity() const {
  check(bytes() <= budget_bytes_, "the entries fit the budget");
  for (const auto& [id, use] : uses_) {
    check(use.last <= clock_ && id <= last_id_, "no entry comes from the future");
  }
}

}  // namespace cohort::store
