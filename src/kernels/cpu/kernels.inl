// Every kernel, written once over sixteen lanes. Included inside a namespace after one of the
// lanes_*.inl files, with that instruction set enabled. Rules that keep all sets bit-equal:
// a lane's operations are in source order, sums across lanes use sum_lanes, contraction is off.

inline float sum_lanes(F a) {
  a = add(a, down<8>(a));
  a = add(a, down<4>(a));
  a = add(a, down<2>(a));
  return first_lane(add(a, down<1>(a)));
}

inline float max_lanes(F a) {
  a = max(down<8>(a), a);
  a = max(down<4>(a), a);
  a = max(down<2>(a), a);
  return first_lane(max(down<1>(a), a));
}

/// exp for x <= 88; 0 below -87. Relative error < 2e-7; exp(0) is exactly 1.
///   source  range reduction by log 2 in two parts, Taylor polynomial of degree 7 on |r| <= 0.3466
inline F exp_lanes(F x) {
  const F low = set1(-87.0f);
  const F clamped = max(low, min(set1(88.0f), x));
  const F n = round_even(mul(clamped, set1(1.44269504f)));
  F r = fma(n, set1(-0.693145752f), clamped);
  r = fma(n, set1(-1.42860677e-6f), r);
  F p = set1(1.0f / 5040);
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = fma(p, r, set1(c));
  }
  return zero_where_less(x, low, scale_by_power(p, n));
}

inline float exp_lanes_scalar(float x) {
  return first_lane(exp_lanes(set1(x)));
}

/// Loads 16 floats, or fewer and zeros at the end of an array.
inline F load_part(const float* p, int n) {
  if (n >= 16) return load(p);
  float v[16] = {};
  std::memcpy(v, p, static_cast<size_t>(n) * sizeof(float));
  return load(v);
}

inline void store_part(float* p, F a, int n) {
  if (n >= 16) return store(p, a);
  float v[16];
  store(v, a);
  std::memcpy(p, v, static_cast<size_t>(n) * sizeof(float));
}

inline float mean_square(const float* x, int n) {
  F squares = set1(0);
  for (int i = 0; i < n; i += 16) {
    const F v = load_part(x + i, n - i);
    squares = fma(v, v, squares);
  }
  return sum_lanes(squares) / static_cast<float>(n);
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
  const float inverse = 1.0f / std::sqrt(mean_square(x, n) + eps);
  for (int i = 0; i < n; i += 16) {
    const F v = mul(load_part(x + i, n - i), set1(inverse));
    store_part(out + i, mul(v, load_part(weight + i, n - i)), n - i);
  }
}

/// Sixteen activations times `factor` as whole numbers. Defined for NaN and infinities, too: what
/// they turn into is arbitrary, but the same everywhere.
inline I whole_codes(F x, float factor, float limit) {
  const F whole = round_even(mul(x, set1(factor)));
  return to_int(min(max(whole, set1(-limit)), set1(limit)));
}

/// What numbers of at most `peak` are multiplied by to become codes of at most `limit`.
inline float code_factor(float peak, float limit) {
  return peak > 0 ? std::min(limit / peak, std::numeric_limits<float>::max()) : 0.0f;
}

constexpr float kWideLimit = 127.0f * 128.0f;  // so that 128 * |high| is at most that

void quantize(const float* x, int n, ptrdiff_t row, const QuantizedRows& out) {
  const float bar = kStandsOut * std::sqrt(mean_square(x, n));
  const ptrdiff_t panel_rows = out.panel_rows(row);
  ptrdiff_t at = out.entry(row);
  for (int g = 0; g < out.groups; ++g, at += panel_rows) {
    const int left = n - g * kGroup;
    const F half[2] = {load_part(x + g * kGroup, left),
                       left > 16 ? load_part(x + g * kGroup + 16, left - 16) : set1(0)};
    F size[2];
    for (int i = 0; i < 2; ++i) size[i] = max(half[i], sub(set1(0), half[i]));
    const float peak = max_lanes(max(size[0], size[1]));
    const bool stands_out = peak > bar;
    const float limit = stands_out ? kWideLimit : 127.0f;
    const float factor = code_factor(peak, limit);
    int32_t sum = 0;
    for (int i = 0; i < 2; ++i) {
      I code = whole_codes(half[i], factor, limit);
      sum += sum_lanes(code);
      if (stands_out) {
        const I high = high_part(code);
        const I low = sub(code, times128(high));
        store_bytes(out.low_codes + at * kGroup + i * 16, low);
        out.low_sums[2 * at + i] = sum_lanes(low);
        code = high;
      }
      store_bytes(out.codes + at * kGroup + i * 16, code);
      out.sums[2 * at + i] = sum_lanes(code);
    }
    out.scales[at] = peak / limit;
    out.scaled_sums[at] = out.scales[at] * static_cast<float>(sum);
    out.stands_out[at] = stands_out;
  }
}

// Sixteen scales of a group, or mins, and their factors if they have such.
struct ScaleF32 {
  static constexpr size_t kBytes = 64;
  static F read(const std::byte* p, const std::byte* = nullptr) {
    return load(reinterpret_cast<const float*>(p));
  }
};
struct ScaleF16 {
  static constexpr size_t kBytes = 32;
  static F read(const std::byte* p, const std::byte* = nullptr) { return load_f16(p); }
};
struct ScaleBF16 {
  static constexpr size_t kBytes = 32;
  static F read(const std::byte* p, const std::byte* = nullptr) { return load_bf16(p); }
};

struct ScaleI8 {
  static constexpr size_t kBytes = 16;
  static F read(const std::byte* p, const std::byte* factors) {
    return mul(to_float(load_signed(p)), load_f16(factors));
  }
};

/// Vector j of unsigned codes (code_vectors.h); for dot4 every code less kLess.
template <int bits>
struct CodesU {
  static constexpr int kBits = bits;
  static constexpr size_t kBytes = code_vector_bytes(bits);
  static constexpr bool kOpened = false, kSigned = false;
  static constexpr int kLess = bits == 8 ? kDotLess : 0;
  static Codes vector(const std::byte* p, int j) {
    constexpr int kWidth = std::bit_floor(static_cast<unsigned>(bits)), kUpper = bits - kWidth;
    static_assert(kUpper == 0 || std::has_single_bit(static_cast<unsigned>(kUpper)));
    const Codes codes = field<kWidth>(at(p, j % kWidth), j / kWidth);
    if constexpr (kUpper == 0) {
      return codes;
    } else {
      return with_upper<kWidth, kUpper>(codes, at(p, kWidth + j % kUpper), j / kUpper);
    }
  }
  static Codes dot_vector(const std::byte* p, int j) {
    return kLess == 0 ? vector(p, j) : less_for_dot(vector(p, j));
  }

 private:
  static Codes at(const std::byte* p, int stored) {
    return load_codes(reinterpret_cast<const uint8_t*>(p) + stored * kCodeVector);
  }
};

/// Codes that were opened to a byte each, in the processor's cache; and those that a unit
/// multiplies as signed ones.
struct OpenedU8 : CodesU<8> {
  static constexpr bool kOpened = true;
};
struct OpenedI8 : OpenedU8 {
  static constexpr bool kSigned = true;
};

// Loops over a block of tiles and rows are unrolled and their arrays in registers, so that the
// chains of all of them run side by side.
#define COHORT_UNROLLED _Pragma("GCC unroll 8")
#define COHORT_EACH_TILE(t) COHORT_UNROLLED for (int t = 0; t < TB; ++t)
#define COHORT_EACH_ROW(r) COHORT_UNROLLED for (int r = 0; r < MB; ++r)

/// sums[t][r] += x . (codes less C::kLess) in the vectors [begin, end) of a group of TB tiles and
/// MB rows of x, codes_of(row) each; exact.
template <class C, int TB, int MB, class CodesOf>
[[gnu::always_inline]] inline void add_dots(const std::byte* const* tiles, int begin, int end,
                                            CodesOf codes_of, I (&sums)[TB][MB]) {
  constexpr bool kFew =
      TB * MB < kBusySums;  // so few that the latency of one chain each would show
  I odd[TB][MB];
  COHORT_EACH_TILE(t) {
    COHORT_EACH_ROW(r) odd[t][r] = set1_i(0);
  }
  COHORT_UNROLLED
  for (int j = begin; j < end; ++j) {
    Codes codes[TB];
    COHORT_EACH_TILE(t) codes[t] = C::dot_vector(tiles[t], j);
    COHORT_EACH_ROW(r) {
      COHORT_EACH_TILE(t) {
        I& sum = kFew && j % 2 == 1 ? odd[t][r] : sums[t][r];
        sum = dot4(sum, codes[t], codes_of(r), j);
      }
    }
  }
  if (!kFew) return;
  COHORT_EACH_TILE(t) {
    COHORT_EACH_ROW(r) sums[t][r] = add(sums[t][r], odd[t][r]);
  }
}

constexpr size_t kWeightsAhead = 8192;
/// Asks for the weights so far behind those at p: processors look less far ahead by themselves. To
/// the second level: the first waits for too few lines at a time.
[[gnu::always_inline]] inline void prefetch_weights(const std::byte* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + kWeightsAhead + i, 0, 2);
}
/// The same where TB tiles are read side by side, of which `left` bytes each are left: beyond these
/// it is the next TB tiles that are read.
template <int TB>
[[gnu::always_inline]] inline void prefetch_tiles(const PackedMatrix& m, const std::byte* const* p,
                                                  size_t left, size_t bytes) {
  const size_t beyond = left <= kWeightsAhead ? (TB - 1) * m.tile_bytes() : 0;
  COHORT_EACH_TILE(t) prefetch_weights(p[t] + beyond, bytes);
}

/// The sum of the codes that belong to a part of a group.
template <int kParts>
inline int32_t sum_of(const int32_t* two, int part) {
  return kParts == 2 ? two[part] : two[0] + two[1];
}

/// Whether any of n flags is set.
template <int n>
inline bool any(const uint8_t* flags) {
  uint64_t all = 0;
  std::memcpy(&all, flags, n);
  return all != 0;
}

/// sums[t][r] = 128 * sums[t][r] + the same part of a group times the low codes, of the rows at the
/// entries from `at` on that stand out.
template <class C, int kParts, int kPart, int TB, int MB>
[[gnu::noinline]] void add_low_products(const std::byte* const* tiles, const QuantizedRows& x,
                                        ptrdiff_t at, int zero, I (&sums)[TB][MB]) {
  for (int r = 0; r < MB; ++r) {
    if (!x.stands_out[at + r]) continue;
    const I start = set1_i(-zero * sum_of<kParts>(x.low_sums + 2 * (at + r), kPart));
    const int8_t* codes = x.low_codes + (at + r) * kGroup;
    I total[TB][1];
    COHORT_EACH_TILE(t) total[t][0] = add(times128(sums[t][r]), start);
    add_dots<C>(
        tiles, kPart * 8 / kParts, (kPart + 1) * 8 / kParts, [&](int) { return codes; }, total);
    COHORT_EACH_TILE(t) sums[t][r] = total[t][0];
  }
}

/// The same with a copy of the sums, so that they need no memory where no row stands out.
template <class C, int kParts, int kPart, int TB, int MB>
[[gnu::always_inline]] inline void add_low_products_of(const std::byte* const* tiles,
                                                       const QuantizedRows& x, ptrdiff_t at,
                                                       int zero, I (&sums)[TB][MB]) {
  I totals[TB][MB];
  COHORT_EACH_TILE(t) {
    COHORT_EACH_ROW(r) totals[t][r] = sums[t][r];
  }
  add_low_products<C, kParts, kPart>(tiles, x, at, zero, totals);
  COHORT_EACH_TILE(t) {
    COHORT_EACH_ROW(r) sums[t][r] = totals[t][r];
  }
}

/// Rows [first, first + MB) of x, from `first_group` on, against TB tiles from `tile` on: exact
/// integer sums per group, then fma over the groups in sequence, added to what `out` holds of the
/// groups before.
template <class C, class S, int kParts, int TB, int MB>
void int_block(const PackedMatrix& m, int tile, const QuantizedRows& x, int first_group, int first,
               float* out, ptrdiff_t stride) {
  F acc[TB][MB];
  const std::byte* p[TB];
  COHORT_EACH_TILE(t) {
    p[t] = m.tile(tile + t);
    COHORT_EACH_ROW(r) {
      acc[t][r] = first_group > 0 ? load(out + r * stride + t * kTileRows) : set1(0);
    }
  }
  const int zero = m.layout.zero - C::kLess;
  const size_t group_bytes = m.group_bytes();
  const bool has_min = m.layout.has_min;
  const int groups = m.groups();
  const ptrdiff_t panel_rows = x.panel_rows(first);
  ptrdiff_t at = x.entry(first) + first_group * panel_rows;
  for (int g = 0; g < groups; ++g, at += panel_rows) {
    if constexpr (!C::kOpened) {
      prefetch_tiles<TB>(m, p, (groups - g) * group_bytes, C::kBytes + 2 * S::kBytes);
    }
    const std::byte* factors[TB];
    COHORT_EACH_TILE(t) factors[t] = m.tile(tile + t) + m.factors_at(g);
    COHORT_UNROLLED
    for (int part = 0; part < kParts; ++part) {
      const int begin = part * 8 / kParts, end = (part + 1) * 8 / kParts;
      I sums[TB][MB];
      COHORT_EACH_ROW(r) {
        const I start = set1_i(-zero * sum_of<kParts>(x.sums + 2 * (at + r), part));
        COHORT_EACH_TILE(t) sums[t][r] = start;
      }
      add_dots<C>(p, begin, end, [&](int r) { return x.codes + (at + r) * kGroup; }, sums);
      F scales[TB];
      COHORT_EACH_TILE(t) scales[t] = S::read(p[t] + C::kBytes + part * S::kBytes, factors[t]);
      if (any<MB>(x.stands_out + at)) {
        part == 0 ? add_low_products_of<C, kParts, 0>(p, x, at, zero, sums)
                  : add_low_products_of<C, kParts, kParts - 1>(p, x, at, zero, sums);
      }
      // Else the compiler keeps sums of two parts at once, in more registers than there are.
      if constexpr (kParts * TB * MB > kMostSums) asm volatile("" ::: "memory");
      const auto add_scaled = [&](auto with_min) {  // at once, as acc lies in memory
        F mins[TB];
        COHORT_EACH_TILE(t) {
          const std::byte* min = p[t] + C::kBytes + kParts * S::kBytes;
          if constexpr (with_min()) mins[t] = S::read(min, factors[t] + kFactorVector);
        }
        COHORT_EACH_ROW(r) {
          const F x_scale = set1(x.scales[at + r]);
          COHORT_EACH_TILE(t) {
            F sum = fma(to_float(sums[t][r]), mul(scales[t], x_scale), acc[t][r]);
            if constexpr (with_min()) sum = fma(mins[t], set1(x.scaled_sums[at + r]), sum);
            acc[t][r] = sum;
          }
        }
      };
      if (kParts == 1 && has_min) {  // groups of 16 have none
        add_scaled(std::true_type{});
      } else {
        add_scaled(std::false_type{});
      }
    }
    COHORT_EACH_TILE(t) p[t] += group_bytes;
  }
  COHORT_EACH_TILE(t) {
    COHORT_EACH_ROW(r) store(out + r * stride + t * kTileRows, acc[t][r]);
  }
}

/// Calls block<TB, MB>(tile, row) until all tiles, at most kTileBlock, and rows are covered.
template <class Block>
void in_blocks(int tiles, int rows, Block block) {
  const auto with_tiles = [&](auto tile_block, int tile) {
    int r = 0;
    for (; r + kRowBlock <= rows; r += kRowBlock) {
      block(tile_block, std::integral_constant<int, kRowBlock>{}, tile, r);
    }
    if constexpr (kRowBlock > 4) {
      if (r + 4 <= rows) block(tile_block, std::integral_constant<int, 4>{}, tile, r), r += 4;
    }
    if constexpr (kRowBlock > 2) {
      if (r + 2 <= rows) block(tile_block, std::integral_constant<int, 2>{}, tile, r), r += 2;
    }
    if (r < rows) block(tile_block, std::integral_constant<int, 1>{}, tile, r);
  };
  if (tiles == kTileBlock) return with_tiles(std::integral_constant<int, kTileBlock>{}, 0);
  for (int t = 0; t < tiles; ++t) with_tiles(std::integral_constant<int, 1>{}, t);
}

/// Calls run(codes, scale, parts) with the readers of the matrix's layout.
template <class Run>
void with_layout(const PackedMatrix& m, Run run) {
  constexpr std::integral_constant<int, 1> kWhole;
  constexpr std::integral_constant<int, 2> kHalves;
  if (m.layout.group == 16) return run(CodesU<6>{}, ScaleI8{}, kHalves);
  const auto with_scale = [&](auto scale) {
    with_code_bits(m.layout.bits, [&](auto bits) { run(CodesU<bits()>{}, scale, kWhole); });
  };
  switch (m.layout.scale) {
    case NumberType::kF32:
      return with_scale(ScaleF32{});
    case NumberType::kF16:
      return with_scale(ScaleF16{});
    case NumberType::kBF16:
      return with_scale(ScaleBF16{});
    case NumberType::kI8:
      if (m.layout.bits == 5) return run(CodesU<5>{}, ScaleI8{}, kWhole);
      return run(CodesU<4>{}, ScaleI8{}, kWhole);
  }
}

/// The codes of a group, less `less`, a byte each.
template <class C>
inline void open_codes(const std::byte* from, int less, std::byte* to) {
  using Bytes [[gnu::vector_size(sizeof(Codes))]] = uint8_t;
  COHORT_UNROLLED
  for (int j = 0; j < 8; ++j) {
    const Codes codes = C::vector(from, j);
    Bytes bytes;
    std::memcpy(&bytes, &codes, sizeof bytes);
    bytes -= static_cast<uint8_t>(less);
    std::memcpy(to + j * sizeof bytes, &bytes, sizeof bytes);
  }
}

/// Fills `opened` with the groups of the tiles from `first_group` on: codes to a byte each, less
/// `less`, and scales to f32.
template <class C, class S, int kParts>
void open_groups(const PackedMatrix& m, TileSpan tiles, int first_group, int less,
                 const PackedMatrix& opened) {
  const int vectors = kParts + (m.layout.has_min ? 1 : 0);
  for (int t = 0; t < tiles.count; ++t) {
    const std::byte* tile = m.tile(tiles.first + t);
    for (int g = 0; g < opened.groups(); ++g) {
      const std::byte* from = tile + (first_group + g) * m.group_bytes();
      const std::byte* factors = tile + m.factors_at(first_group + g);
      std::byte* to = opened.data + t * opened.tile_bytes() + g * opened.group_bytes();
      prefetch_weights(from, C::kBytes + 2 * S::kBytes);
      open_codes<C>(from, less, to);
      auto* scales = reinterpret_cast<float*>(to + CodesU<8>::kBytes);
      for (int i = 0; i < vectors; ++i) {
        const std::byte* read = from + C::kBytes + i * S::kBytes;
        store(scales + i * kTileRows, S::read(read, factors + (i < kParts ? 0 : kFactorVector)));
      }
    }
  }
}

/// Tiles pass over the rows in blocks that registers hold.
struct ByLanes {
  static constexpr int kPanel = 8;          // rows
  static constexpr int kRowsToOpen = 32;    // repay that tiles are opened first,
  static constexpr int kGroupsToOpen = 32;  // so many groups at a time
  static constexpr bool kSigned = false;    // whether codes are opened less the layout's zero

  template <class C, class S, int kParts>
  static void multiply(const PackedMatrix& m, TileSpan tiles, const QuantizedRows& x,
                       int first_group, int first, int count, float* out, ptrdiff_t stride) {
    in_blocks(tiles.count, count, [&](auto tb, auto mb, int tile, int r) {
      int_block<C, S, kParts, tb(), mb()>(m, tiles.first + tile, x, first_group, first + r,
                                          out + r * stride + tile * kTileRows, stride);
    });
  }
};

template <class By>
void matmul_int(const PackedMatrix& m, TileSpan tiles, const QuantizedRows& x, int first, int count,
                float* out, ptrdiff_t stride) {
  static_assert(By::kPanel % kRowBlock == 0);
  with_layout(m, [&](auto codes, auto scale, auto parts) {
    using C = decltype(codes);
    using S = decltype(scale);
    constexpr bool kByte = C::kBits == 8;  // of which all bits may be needed
    const int less = By::kSigned ? m.layout.zero : 0;
    const bool cheap_as_is = kByte && less == 0;
    if (cheap_as_is || count < By::kRowsToOpen) {
      return By::template multiply<C, S, parts()>(m, tiles, x, 0, first, count, out, stride);
    }
    // A byte a code and f32 scales: dearer to read once, cheaper to read again.
    alignas(64)
        std::byte room[kMostTiles * By::kGroupsToOpen * (CodesU<8>::kBytes + 3 * ScaleF32::kBytes)];
    PackedMatrix opened{.rows = kMostTiles * kTileRows, .layout = m.layout, .data = room};
    opened.layout.bits = 8;
    opened.layout.scale = NumberType::kF32;
    opened.layout.zero -= less;
    auto multiply = By::template multiply<OpenedU8, ScaleF32, parts()>;
    if constexpr (By::kSigned) {
      if (!kByte || less != 0) multiply = By::template multiply<OpenedI8, ScaleF32, parts()>;
    }
    for (int g = 0; g < m.groups(); g += By::kGroupsToOpen) {
      opened.cols = std::min(By::kGroupsToOpen, m.groups() - g) * kGroup;
      open_groups<C, S, parts()>(m, tiles, g, less, opened);
      multiply(opened, {0, tiles.count}, x, g, first, count, out, stride);
    }
  });
}

/// The exact path: weights dequantized to f32, one fma per input in order.
template <class C, class S, int kParts, int MB>
void f32_rows(const PackedMatrix& m, int tile, const float* x, ptrdiff_t x_stride, float* out,
              ptrdiff_t stride) {
  F acc[MB];
  COHORT_EACH_ROW(r) acc[r] = set1(0);
  const std::byte* p = m.tile(tile);
  const F zero = set1(static_cast<float>(m.layout.zero));
  for (int g = 0; g < m.groups(); ++g, p += m.group_bytes()) {
    const std::byte* scales = p + C::kBytes;
    const std::byte* factors = m.tile(tile) + m.factors_at(g);
    const F min =
        m.layout.has_min ? S::read(scales + kParts * S::kBytes, factors + kFactorVector) : set1(0);
    const int inputs = m.cols - g * kGroup < kGroup ? m.cols - g * kGroup : kGroup;
    for (int k = 0; k < inputs; ++k) {
      const F scale = S::read(scales + (k * kParts / kGroup) * S::kBytes, factors);
      const F weight = fma(scale, sub(to_float(code_at(C::vector(p, k / 4), k % 4)), zero), min);
      COHORT_EACH_ROW(r) acc[r] = fma(weight, set1(x[r * x_stride + g * kGroup + k]), acc[r]);
    }
  }
  COHORT_EACH_ROW(r) store(out + r * stride, acc[r]);
}

template <class S, int TB, int MB>
void dense_block(const PackedMatrix& m, int tile, const float* x, ptrdiff_t x_stride, float* out,
                 ptrdiff_t stride) {
  F acc[TB][MB];
  const std::byte* p[TB];
  COHORT_EACH_TILE(t) {
    p[t] = m.tile(tile + t);
    COHORT_EACH_ROW(r) acc[t][r] = set1(0);
  }
  for (int k = 0; k < m.cols; ++k) {
    F weights[TB];
    prefetch_tiles<TB>(m, p, (m.cols - k) * S::kBytes, S::kBytes);
    COHORT_EACH_TILE(t) {
      weights[t] = S::read(p[t]);
      p[t] += S::kBytes;
    }
    COHORT_EACH_ROW(r) {
      const F in = set1(x[r * x_stride + k]);
      COHORT_EACH_TILE(t) acc[t][r] = fma(weights[t], in, acc[t][r]);
    }
  }
  COHORT_EACH_TILE(t) {
    COHORT_EACH_ROW(r) store(out + r * stride + t * kTileRows, acc[t][r]);
  }
}

/// Calls run(element) with the reader of a dense matrix's elements.
template <class Run>
void with_element(const PackedMatrix& m, Run run) {
  switch (m.element) {
    case NumberType::kF16:
      return run(ScaleF16{});
    case NumberType::kBF16:
      return run(ScaleBF16{});
    default:
      return run(ScaleF32{});
  }
}

void matmul_f32(const PackedMatrix& m, TileSpan tiles, const float* x, ptrdiff_t x_stride,
                int first, int count, float* out, ptrdiff_t stride) {
  in_blocks(tiles.count, count, [&](auto tb, auto mb, int tile, int r) {
    const float* in = x + (first + r) * x_stride;
    float* to = out + r * stride + tile * kTileRows;
    if (m.dense) {
      return with_element(m, [&](auto element) {
        dense_block<decltype(element), tb(), mb()>(m, tiles.first + tile, in, x_stride, to, stride);
      });
    }
    with_layout(m, [&](auto codes, auto scale, auto parts) {
      for (int t = 0; t < tb(); ++t) {
        f32_rows<decltype(codes), decltype(scale), parts(), mb()>(
            m, tiles.first + tile + t, in, x_stride, to + t * kTileRows, stride);
      }
    });
  });
}

#include "kernels/cpu/attention.inl"
#include "kernels/cpu/elementwise.inl"

template <class By = ByLanes>
constexpr Kernels table(const char* name) {
  return {name, By::kPanel, rms_norm, quantize, matmul_int<By>, matmul_f32,
          gate, rope,       attend,   merge,    argmax,         exp_shifted};
}
