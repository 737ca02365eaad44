#pragma once

#include <functional>
#include <optional>

#include "engine/forward.h"
#include "engine/prefill_policy.h"
#include "engine/token_budget.h"
#include "store/ssd/ssd_store.h"

namespace cohort::engine {

struct EngineOptions {
  size_t max_rows = 32;                  // rows that are worked on at once; more wait
  size_t max_waiting = 512;              // requests that may wait; more are refused
  size_t max_waiting_tokens = 4u << 20;  // of their prompts; one prompt may be longer
  size_t kv_memory_bytes = SIZE_MAX;     // of the caches of all rows, kept prefixes included
  size_t prompt_cache_bytes = 0;         // of these for kept prefixes; 0 = none are kept
  std::optional<store::SsdOptions> ssd;  // kept prefixes outlive the process
  std::chrono::seconds demote_idle{0};   // unused for so long, they go from memory; 0 = never
  int64_t generation_checkpoint = 0;     // answer tokens between two checkpoints on SSD; 0 = off
  PrefillPolicy prefill;
  TokenBudget::Options budget;
  std::function<Clock::time_point()> now = Clock::now;
};

}  // namespace cohort::engine
