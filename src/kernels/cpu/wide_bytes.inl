// Products with whole numbers of 15 bits as two products of bytes, for entries of a table as four.
// Part of a target, after lanes.
//
// Of 32 inputs the bytes `high` come first, then `low`: 128 * high + low, |low| <= 64.

struct WideSum {
  static constexpr int kSums = 2;  // of sixteen lanes
  I high, low;
};
struct EntrySum {
  static constexpr int kSums = 4;
  WideSum high, low;
};
struct Entries {
  Codes high, low;  // signed
};
inline WideSum wide_sum(int32_t start) {
  return {set1_i(0), set1_i(start)};
}
inline EntrySum entry_sum() {
  return {wide_sum(0), wide_sum(0)};
}
inline I total(WideSum sum) {
  return add(times128(sum.high), sum.low);
}
inline I total(EntrySum sum) {
  return add(times128(total(sum.high)), total(sum.low));
}
template <int bits>
inline Entries lookup(Codes c, const EntryTable& table) {
  return {lookup_bytes<bits>(c, table.high), lookup_bytes<bits>(c, table.low)};
}
/// sum + codes, or entries, . the inputs 4 j to 4 j + 3 of x (exact).
inline WideSum wide_dot(WideSum sum, Codes c, const int8_t* x, int j) {
  return {dot4(sum.high, c, x, j), dot4(sum.low, c, x + kGroup, j)};
}
inline WideSum wide_dot_signed(WideSum sum, Codes c, const int8_t* x, int j) {
  return {dot4_signed(sum.high, c, x, j), dot4_signed(sum.low, c, x + kGroup, j)};
}
inline EntrySum wide_dot(EntrySum sum, Entries e, const int8_t* x, int j) {
  return {wide_dot_signed(sum.high, e.high, x, j), wide_dot_signed(sum.low, e.low, x, j)};
}
/// Stores sixteen codes from input `at` of x, 0 or 16, on.
inline void store_wide(int8_t* x, int at, I codes) {
  const I high = high_part(codes);
  store_bytes(x + at, high);
  store_bytes(x + kGroup + at, sub(codes, times128(high)));
}
