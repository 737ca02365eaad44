// Quantized products on a matrix unit: sixteen rows against the sixteen outputs of a tile at a
// time. Included after kernels.inl.

/// As ByLanes. An object of Products gives this thread the unit; its
///   multiply<kInputs, kSigned>(x, codes, sums)
/// fills sums[16][16] with sixteen rows of kInputs signed bytes, kGroup apart, times codes of
/// kInputs inputs of a tile, bytes with or without a sign.
template <class Products>
struct ByTiles {
  static constexpr int kPanel = 16;
  static constexpr int kRowsToOpen = 32;
  static constexpr int kGroupsToOpen = 16;
  static constexpr bool kSigned = true;

  template <class C, class S, int kParts>
  static void multiply(const PackedMatrix& m, TileSpan tiles, const QuantizedRows& x,
                       int first_group, int first, int count, float* out, ptrdiff_t stride) {
    constexpr bool kAsSigned = C::kSigned || !C::kOpened;
    auto panel_by_tile = multiply_panel<C, S, kParts, kAsSigned>;
    if constexpr (C::kBits == 8 && !C::kOpened) {  // all bits may be needed
      if (m.layout.zero == 0) panel_by_tile = multiply_panel<C, S, kParts, false>;
    }
    constexpr int kFewest = C::kOpened ? 1 : kFewestRows;
    int r = 0;
    if (count >= kFewest) {
      const Products products;
      for (; count - r >= kFewest; r += kPanel) {
        for (int t = 0; t < tiles.count; ++t) {
          panel_by_tile(products, m, tiles.first + t, x, first_group, first + r,
                        std::min(kPanel, count - r), out + r * stride + t * kTileRows, stride);
        }
      }
    }
    if constexpr (!C::kOpened) {
      if (r >= count) return;
      ByLanes::multiply<C, S, kParts>(m, tiles, x, first_group, first + r, count - r,
                                      out + r * stride, stride);
    }
  }

 private:
  static constexpr int kFewestRows = 10;  // fewer are left to the lanes
  static constexpr int kAhead = 2;        // groups: what the unit needs from reading to the sums,
  static constexpr int kOpenAhead = 4;    // and from opening
  static constexpr int kRing = 4;         // groups that are on their way
  static_assert(kRing > kAhead && kRing >= kOpenAhead);

#define COHORT_EACH_PANEL_ROW(r) _Pragma("GCC unroll 16") for (int r = 0; r < kPanel; ++r)

  /// Rows [first, first + rows), which begin a panel: of a group the codes are opened, then
  /// multiplied, then scaled, some groups later each. All sixteen rows are computed: those beyond
  /// are of whatever follows, and are not stored.
  template <class C, class S, int kParts, bool kSignedCodes>
  static void multiply_panel(const Products& products, const PackedMatrix& m, int tile,
                             const QuantizedRows& x, int first_group, int first, int rows,
                             float* out, ptrdiff_t stride) {
    constexpr bool kInPlace = C::kSigned || !kSignedCodes;
    constexpr int kInputs = kGroup / kParts;
    const size_t group_bytes = m.group_bytes();
    const ptrdiff_t panel_rows = x.panel_rows(first);
    const ptrdiff_t start = x.entry(first) + first_group * panel_rows;
    const unsigned all_rows = (1u << rows) - 1;
    const int groups = m.groups();

    alignas(64) std::byte room[kInPlace ? 1 : kRing][CodesU<8>::kBytes];
    alignas(64) int32_t sums[kRing][kParts][kPanel * kTileRows];
    alignas(64) int32_t low_sums[kRing][kParts][kPanel * kTileRows];
    unsigned stand_out[kRing];  // bit r: row r has low codes
    const std::byte* closed = m.tile(tile);
    const auto open_group = [&](int g) {
      if (C::kOpened) return;
      prefetch_weights(closed, C::kBytes + 2 * S::kBytes);
      if (!kInPlace) open_codes<C>(closed, m.layout.zero, room[g % kRing]);
      closed += group_bytes;
    };
    ptrdiff_t at = start;
    const std::byte* in_place = m.tile(tile);
    const auto multiply_group = [&](int g) {
      const std::byte* codes = kInPlace ? in_place : room[g % kRing];
      const unsigned low = stand_out[g % kRing] = flag_bits(x.stands_out + at) & all_rows;
      for (int part = 0; part < kParts; ++part) {
        const std::byte* of_part = codes + part * kInputs * kTileRows;
        const ptrdiff_t in = at * kGroup + part * kInputs;
        products.template multiply<kInputs, kSignedCodes>(x.codes + in, of_part,
                                                          sums[g % kRing][part]);
        if (low == 0) continue;
        products.template multiply<kInputs, kSignedCodes>(x.low_codes + in, of_part,
                                                          low_sums[g % kRing][part]);
      }
      at += panel_rows;
      in_place += group_bytes;
    };

    F acc[kPanel];
    COHORT_EACH_PANEL_ROW(r) {
      acc[r] = first_group > 0 && r < rows ? load(out + r * stride) : set1(0);
    }
    for (int g = 0; g < std::min(kOpenAhead, groups); ++g) open_group(g);
    for (int g = 0; g < std::min(kAhead, groups); ++g) multiply_group(g);
    ptrdiff_t scaled = start;
    const std::byte* scales = m.tile(tile) + C::kBytes;
    for (int g = 0; g < groups; ++g) {
      if (g + kOpenAhead < groups) open_group(g + kOpenAhead);
      if (g + kAhead < groups) multiply_group(g + kAhead);
      const std::byte* factors = m.tile(tile) + m.factors_at(g);
      for (int part = 0; part < kParts; ++part) {
        int32_t* of_part = sums[g % kRing][part];
        add_low_sums(stand_out[g % kRing], low_sums[g % kRing][part], of_part);
        add_scaled(of_part, S::read(scales + part * S::kBytes, factors), x.scales + scaled, acc);
      }
      if (m.layout.has_min) {
        const F min = S::read(scales + kParts * S::kBytes, factors + kFactorVector);
        COHORT_EACH_PANEL_ROW(r) acc[r] = fma(min, set1(x.scaled_sums[scaled + r]), acc[r]);
      }
      scaled += panel_rows;
      scales += group_bytes;
    }
    COHORT_EACH_PANEL_ROW(r) {
      if (r < rows) store(out + r * stride, acc[r]);
    }
  }

  [[gnu::always_inline]] static void add_scaled(const int32_t* sums, F scale, const float* x_scales,
                                                F (&acc)[kPanel]) {
    COHORT_EACH_PANEL_ROW(r) {
      const F factor = mul(scale, set1(x_scales[r]));
      acc[r] = fma(to_float(load_ints(sums + r * kTileRows)), factor, acc[r]);
    }
  }

  /// sums[r] = 128 * sums[r] + low_sums[r] of the rows that stand out.
  static void add_low_sums(unsigned stand_out, const int32_t* low_sums, int32_t* sums) {
    for (; stand_out != 0; stand_out &= stand_out - 1) {
      const int at = __builtin_ctz(stand_out) * kTileRows;
      store_ints(sums + at, add(times128(load_ints(sums + at)), load_ints(low_sums + at)));
    }
  }

  /// Bit i is set where flag i of sixteen is 1.
  static unsigned flag_bits(const uint8_t* flags) {
    unsigned bits = 0;
    for (int half = 0; half < 2; ++half) {
      uint64_t eight;
      std::memcpy(&eight, flags + half * 8, 8);
      eight &= 0x0101010101010101u;  // behind the last row may be anything
      // Byte i times 2 ^ (56 - 7 i) is bit i of the highest byte; nothing is carried into it.
      bits |= static_cast<unsigned>(eight * 0x0102040810204080u >> 56) << half * 8;
    }
    return bits;
  }
};
