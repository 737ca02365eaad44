// Products with whole numbers of 15 bits as products of 16 bits. Part of a target, after lanes,
// which have Words (16 bits for each of a lane's four inputs), widen, lookup, dot_words and
// store_wide.

struct WideSum {
  static constexpr int kSums = 1;  // of sixteen lanes
  I sum;
};
using EntrySum = WideSum;
inline WideSum wide_sum(int32_t start) {
  return {set1_i(start)};
}
inline EntrySum entry_sum() {
  return wide_sum(0);
}
inline I total(WideSum sum) {
  return sum.sum;
}
/// sum + codes, or entries, . the inputs 4 j to 4 j + 3 of x (exact).
inline WideSum wide_dot(WideSum sum, Codes c, const int8_t* x, int j) {
  return {dot_words(sum.sum, widen(c), x, j)};
}
inline EntrySum wide_dot(EntrySum sum, Words entries, const int8_t* x, int j) {
  return {dot_words(sum.sum, entries, x, j)};
}
