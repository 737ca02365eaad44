#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "store/radix.h"

namespace cohort::store {

/// Decides which entries of several caches leave, so that all of them stay within one budget: those
/// whose latest use is the longest ago, where some count as used later than they were.
///   thread  engine; outlives its tenants, which call nothing of it in their end
class Retention {
 public:
  using Clock = std::chrono::steady_clock;

  /// A cache that shares the budget.
  class Tenant {
   public:
    explicit Tenant(Retention& retention) : retention_(retention) {
      retention.tenants_.push_back(this);
    }
    Tenant(const Tenant&) = delete;
    Tenant& operator=(const Tenant&) = delete;

    /// What all its entries take. An entry that shares memory with others frees less than it is
    /// large, so only the tenant knows.
    virtual size_t bytes() const = 0;

   protected:
    ~Tenant() = default;
    /// Frees an entry and erases it from the retention.
    virtual void remove(EntryId id) = 0;
    /// Entries that had to go.
    uint64_t evictions() const { return evictions_; }

    Retention& retention_;

   private:
    friend class Retention;
    uint64_t evictions_ = 0;
  };

  struct Use {
    Tenant* owner = nullptr;
    uint64_t last = 0;    // the number of the use
    uint64_t favour = 0;  // by how many uses it counts as used later
    Clock::time_point at;
    uint64_t worth() const { return last + favour; }
  };

  ///   budget_bytes  0 = nothing is kept
  explicit Retention(size_t budget_bytes, std::function<Clock::time_point()> now = Clock::now)
      : budget_bytes_(budget_bytes), now_(std::move(now)) {}
  Retention(const Retention&) = delete;
  Retention& operator=(const Retention&) = delete;

  size_t budget_bytes() const { return budget_bytes_; }
  /// What all tenants take.
  size_t bytes() const;
  /// Of all tenants.
  const std::map<EntryId, Use>& uses() const { return uses_; }

  /// A take or a put begins: what it touches or adds was used later than all others.
  void begin_use() { ++clock_; }
  /// A new entry, used now.
  EntryId add(Tenant& owner);
  void touch(EntryId id);
  void favour(EntryId id, uint64_t uses) { uses_.at(id).favour = uses; }
  void erase(EntryId id) { uses_.erase(id); }
  void erase_all(const Tenant& owner) noexcept;

  /// Frees the entries that are worth least, but for one, until the rest fits the budget.
  void make_room(EntryId spared);
  /// Frees the entry of a tenant that is worth least.
  ///   returns  false if there is none
  bool evict_one(const Tenant& owner) { return evict(&owner, 0); }
  /// Frees entries that were last used before `then`.
  void drop_unused(Clock::time_point then);

  /// Throws Error{kInternal} if the books contradict each other.
  void check_integrity() const;

 private:
  ///   owner  null = any
  bool evict(const Tenant* owner, EntryId spared);

  const size_t budget_bytes_;
  const std::function<Clock::time_point()> now_;
  std::vector<Tenant*> tenants_;
  std::map<EntryId, Use> uses_;
  EntryId last_id_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace cohort::store
