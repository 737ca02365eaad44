#pragma once

#include <cstdint>
#include <span>

#include "engine/stream.h"
#include "kernels/cpu/kernels.h"

namespace cohort::engine {

/// The logarithm of a probability of 0, which JSON has no word for.
///   source  what OpenAI sends
constexpr float kLeastLogprob = -9999;

/// What the model itself thinks of `token` and of the `top` likeliest tokens, likeliest first and
/// of equals the lower id. Logits that are not finite count as a probability of 0 and are never
/// among the likeliest. A pure function of the logits: equal bits in every instruction set.
///   logits  as the model gave them, before any sampling option changes them
///   cost    two passes over the logits; nothing of their size is allocated or sorted
ScoredToken score(std::span<const float> logits, int32_t token, int top,
                  const kernels::cpu::Kernels& kernels);

}  // namespace cohort::engine
