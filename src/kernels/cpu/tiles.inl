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

  template <int kParts>
  static void multiply(const PackedMatrix& opened, int tiles, const QuantizedRows& x,
                       int first_group, int first, int count, float* out, ptrdiff_t stride) {
    const auto rows_by_tile =
        opened.layout.zero != 0 ? multiply_panel<kParts, true> : multiply_panel<kParts, false>;
    const Products products;
    for (int r = 0; r < count; r += kPanel) {
      for (int t = 0; t < tiles; ++t) {
        rows_by_tile(products, opened, t, x, first_group, first + r, std::min(kPanel, count - r),
                     out + r * stride + t * kTileRows, stride);
      }
    }
  }

 private:
  static constexpr int kAhead = 2;  // groups: what the unit needs from reading to the sums
  static constexpr int kRing = 4;   // at least kAhead + 1

  /// What a panel and a tile sum up in a group, before it is scaled.
  template <int kParts>
  struct Sums {
    alignas(64) int32_t of_codes[kParts][kPanel * kTileRows];
    alignas(64) int32_t of_low_codes[kParts][kPanel * kTileRows];
    unsigned stand_out;  // bit r: row r has low codes
  };

#define COHORT_EACH_PANEL_ROW(r) _Pragma("GCC unroll 16") for (int r = 0; r < kPanel; ++r)

  /// Rows [first, first + rows), which begin a panel. All sixteen are computed: those beyond are of
  /// whatever follows, and are not stored.
  template <int kParts, bool kSignedCodes>
  static void multiply_panel(const Products& products, const PackedMatrix& opened, int tile,
                             const QuantizedRows& x, int first_group, int first, int rows,
                             float* out, ptrdiff_t stride) {
    constexpr int kInputs = kGroup / kParts;
    const size_t group_bytes = opened.group_bytes();
    const bool has_min = opened.layout.has_min;
    const ptrdiff_t panel_rows = x.panel_rows(first);
    const ptrdiff_t start = x.entry(first) + first_group * panel_rows;
    const unsigned all_rows = (1u << rows) - 1;

    const int8_t* codes = x.codes + start * kGroup;
    const int8_t* low_codes = x.low_codes + start * kGroup;
    const uint8_t* flags = x.stands_out + start;
    const std::byte* weights = opened.tile(tile);
    const auto multiply_group = [&](Sums<kParts>& sums) {
      sums.stand_out = flag_bits(flags) & all_rows;
      for (int part = 0; part < kParts; ++part) {
        const std::byte* of_part = weights + part * kInputs * kTileRows;
        products.template multiply<kInputs, kSignedCodes>(codes + part * kInputs, of_part,
                                                          sums.of_codes[part]);
        if (sums.stand_out == 0) continue;
        products.template multiply<kInputs, kSignedCodes>(low_codes + part * kInputs, of_part,
                                                          sums.of_low_codes[part]);
      }
      codes += panel_rows * kGroup;
      low_codes += panel_rows * kGroup;
      flags += panel_rows;
      weights += group_bytes;
    };

    F acc[kPanel];
    COHORT_EACH_PANEL_ROW(r) {
      acc[r] = first_group > 0 && r < rows ? load(out + r * stride) : set1(0);
    }
    const float* x_scales = x.scales + start;
    const float* x_sums = x.scaled_sums + start;
    const std::byte* scales = opened.tile(tile) + CodesU8::kBytes;
    Sums<kParts> ring[kRing];
    const int groups = opened.groups();
    for (int g = 0; g < std::min(kAhead, groups); ++g) multiply_group(ring[g]);
    for (int g = 0; g < groups; ++g) {
      if (g + kAhead < groups) multiply_group(ring[(g + kAhead) % kRing]);
      Sums<kParts>& sums = ring[g % kRing];
      for (int part = 0; part < kParts; ++part) {
        int32_t* of_part = sums.of_codes[part];
        add_low_codes(sums.stand_out, sums.of_low_codes[part], of_part);
        const F scale = ScaleF32::read(scales + part * ScaleF32::kBytes);
        COHORT_EACH_PANEL_ROW(r) {
          const F factor = mul(scale, set1(x_scales[r]));
          acc[r] = fma(to_float(load_ints(of_part + r * kTileRows)), factor, acc[r]);
        }
      }
      if (has_min) {
        const F min = ScaleF32::read(scales + kParts * ScaleF32::kBytes);
        COHORT_EACH_PANEL_ROW(r) acc[r] = fma(min, set1(x_sums[r]), acc[r]);
      }
      x_scales += panel_rows;
      x_sums += panel_rows;
      scales += group_bytes;
    }
    COHORT_EACH_PANEL_ROW(r) {
      if (r < rows) store(out + r * stride, acc[r]);
    }
  }

  /// sums[r] = 128 * sums[r] + low_sums[r] of the rows that stand out.
  static void add_low_codes(unsigned stand_out, const int32_t* low_sums, int32_t* sums) {
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
