#pragma once

// What this machine can do at most: the figures that others are a percentage of. Each is the best
// of a few tries, in billions per second over all threads of the pool; 0 = it has no such
// instructions.

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/cpu/cpu.h"

#if defined(COHORT_X86_KERNELS)
#include <immintrin.h>
#endif

namespace cohort::bench {

constexpr int kTries = 9;

inline double seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Billions per second when each of `items` calls of body(i), over the pool, does `work` of them.
template <class Body>
double best_rate(kernels::cpu::ThreadPool& pool, size_t items, double work, const Body& body) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(items, [&](size_t item) { body(item); });
    best = std::max(best, static_cast<double>(items) * work / seconds(start) / 1e9);
  }
  return best;
}

#if defined(COHORT_X86_KERNELS)
constexpr int kSteps = 1 << 20, kChains = 12;  // independent sums, enough to hide the latency

// In assembly, because compilers keep so many sums in registers only sometimes.
__attribute__((target("avx512f,avx512vnni"))) inline void multiply_int8() {
  __m512i sums[kChains] = {}, weights = _mm512_set1_epi8(5);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) asm volatile("vpdpbusd %1, %1, %0" : "+v"(sum) : "v"(weights));
  }
}

/// The same where a register of weights is multiplied by four codes that stand in L1.
__attribute__((target("avx512f,avx512vnni"))) inline void multiply_int8_from_l1() {
  alignas(64) static const int32_t codes[64 * kChains] = {};
  __m512i sums[kChains] = {}, weights = _mm512_set1_epi8(5);
  for (int i = 0; i < kSteps; ++i) {
    const int32_t* at = codes + i % 64 * kChains;
#pragma GCC unroll 12
    for (__m512i& sum : sums) {
      asm volatile("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(weights), "m"(*at++));
    }
  }
}

__attribute__((target("avx512f"))) inline void multiply_f32_wide() {
  __m512 sums[kChains] = {}, weights = _mm512_set1_ps(0.5f);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) asm volatile("vfmadd231ps %1, %1, %0" : "+v"(sum) : "v"(weights));
  }
}

__attribute__((target("avx2,fma"))) inline void multiply_f32() {
  __m256 sums[kChains] = {}, weights = _mm256_set1_ps(0.5f);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) asm volatile("vfmadd231ps %1, %1, %0" : "+x"(sum) : "x"(weights));
  }
}

inline bool has_vnni() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni");
}
inline double rate_of(kernels::cpu::ThreadPool& pool, double operations, void (*loop)()) {
  return best_rate(pool, pool.size(), kSteps * operations, [loop](size_t) { loop(); });
}
inline double int8_gop_s(kernels::cpu::ThreadPool& pool) {
  return has_vnni() ? rate_of(pool, kChains * 128, multiply_int8) : 0;
}
inline double int8_from_l1_gop_s(kernels::cpu::ThreadPool& pool) {
  return has_vnni() ? rate_of(pool, kChains * 128, multiply_int8_from_l1) : 0;
}
inline double f32_gflop_s(kernels::cpu::ThreadPool& pool) {
  if (__builtin_cpu_supports("avx512f")) return rate_of(pool, kChains * 32, multiply_f32_wide);
  return __builtin_cpu_supports("fma") ? rate_of(pool, kChains * 16, multiply_f32) : 0;
}
#else
inline double int8_gop_s(kernels::cpu::ThreadPool&) {
  return 0;
}
inline double int8_from_l1_gop_s(kernels::cpu::ThreadPool&) {
  return 0;
}
inline double f32_gflop_s(kernels::cpu::ThreadPool&) {
  return 0;
}
#endif

/// Streams through memory with loads as wide as there are, 512 bytes at a time.
#if defined(COHORT_X86_KERNELS)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
inline uint64_t
sum_of(const std::byte* data, size_t bytes) {
  using Lanes [[gnu::vector_size(64)]] = uint64_t;
  Lanes sums[8] = {};
  for (const std::byte* end = data + bytes / sizeof(sums) * sizeof(sums); data < end;
       data += sizeof(sums)) {
    for (int i = 0; i < 8; ++i) sums[i] += reinterpret_cast<const Lanes*>(data)[i];
  }
  for (int i = 1; i < 8; ++i) sums[0] += sums[i];
  return sums[0][0];
}

/// Reads 1 GiB on huge pages, each thread from one place at a time.
inline double read_gb_s(kernels::cpu::ThreadPool& pool) {
  constexpr size_t kBytes = size_t{1} << 30, kPiece = 16 << 20;
  const kernels::cpu::AlignedBuffer memory(kBytes);
  std::memset(memory.data(), 1, kBytes);
  return best_rate(pool, kBytes / kPiece, kPiece, [&](size_t i) {
    asm volatile("" : : "r"(sum_of(memory.data() + i * kPiece, kPiece)));
  });
}

}  // namespace cohort::bench
