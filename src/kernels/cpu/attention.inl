// Attention over the blocks of a row, for every encoding. Part of kernels.inl.
//
// A lane is a token of keys, a channel of values. An encoding brings a type for each. Dense ones
// read sixteen lanes as floats. Codes are read by CodesU and multiplied as integers, exactly, by
// queries and weights that were rounded to 15 bits. Codes of values may stand for entries of a
// table, which meet weights of 14 bits. The types say the rest:
//   keys    kBits; kLess, what is stored in addition to the code; of a group and sixteen tokens its
//           scales, with add_group(q . codes, sum of q, scores of the groups before)
//   values  kBits; scale_weights, which multiplies 64 weights by the scales of a group and returns
//           what is added to every channel; kLookup, and if so table()

/// Where a kv head keeps what in a block: the same for all blocks of a tile.
struct KvPlaces {
  explicit KvPlaces(const KvGeometry& geometry)
      : head_dim(geometry.head_dim),
        group(geometry.encoding.group),
        groups(geometry.groups()),
        value_stride(geometry.value_stride()),
        values_at(geometry.values_at()),
        value_row_bytes(geometry.value_row_bytes()),
        scales_at(geometry.scales_at(0)),
        scale_bytes(geometry.scale_bytes()),
        head_bytes(geometry.head_bytes()) {}

  int head_dim, group, groups, value_stride;
  size_t values_at, value_row_bytes, scales_at, scale_bytes, head_bytes;
};

/// One kv head of one block.
struct KvHead {
  const KvPlaces& places;
  const std::byte* data;

  const std::byte* values() const { return data + places.values_at; }
  /// The scales of 64 tokens.
  const std::byte* scales(KvScales array, int group) const {
    return data + places.scales_at + array * places.scale_bytes +
           static_cast<size_t>(group) * kBlockTokens * 2;
  }
};

/// Asks for what a tile reads some KB later, as fast as it reads: one kv head of its blocks, which
/// the processor does not see as one stream.
class Ahead {
 public:
  Ahead(const AttendTile& tile, const KvPlaces& places)
      : tile_(&tile), bytes_(places.head_bytes), lead_(std::max(kLeastLead, places.values_at)) {
    go_to(tile.first_block, 0);
    advance(lead_);
  }

  /// What is read now is `block`.
  void begin_block(int64_t block) {
    go_to(block + static_cast<int64_t>(lead_ / bytes_), lead_ % bytes_);
  }
  /// `bytes` more are read.
  template <int bytes>
  void advance() {
    for (int line = 0; line < bytes; line += 64) prefetch(at_ + line);
    at_ += bytes;
    if (at_ >= end_) go_to(block_ + 1, 0);
  }
  void advance(size_t bytes) {
    for (size_t line = 0; line < bytes; line += 64) advance<64>();
  }

 private:
  // And at least all keys, of which dense ones are read in several places at a time.
  static constexpr size_t kLeastLead = 8192;

  static void prefetch(const std::byte* p) {
    __builtin_prefetch(p, 0, 2);  // to the second level: the first is too small for so much
  }
  /// Or to the first block after it that is there, at most to the last one: at the end what is
  /// already here is asked for.
  void go_to(int64_t block, size_t offset) {
    const int64_t last = tile_->last_block - 1;
    for (block_ = std::min(block, last); tile_->blocks[block_] == nullptr; ++block_) {
      if (block_ == last) return;
    }
    const std::byte* const data = tile_->blocks[block_] + tile_->kv_head * bytes_;
    at_ = data + offset;
    end_ = data + bytes_;
  }

  const AttendTile* tile_;
  size_t bytes_, lead_;
  int64_t block_ = 0;
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
};

#include "kernels/cpu/encodings/affine.inl"
#include "kernels/cpu/encodings/dense.inl"
#include "kernels/cpu/encodings/turboquant.inl"

/// How many parts of sixteen lanes QT queries meet at a time, so that their sums stay in registers.
template <int QT>
constexpr int kParts = kMostSums / QT >= 4   ? 4
                       : kMostSums / QT >= 2 ? 2
                                             : 1;

#define COHORT_EACH_QUERY(i) COHORT_UNROLLED for (int i = 0; i < QT; ++i)
#define COHORT_EACH_PART(p) COHORT_UNROLLED for (int p = 0; p < PT; ++p)

/// Floats as whole numbers of up to 15 bits times a scale.
struct WideCodes {
  const int8_t* codes;  // 64 bytes for 32 of them, as wide_dot reads them
  float scale;
  int32_t sum;  // of the codes
};

/// Of n floats, whole groups of them, up to `limit`; `codes` has room for 2 n bytes.
inline WideCodes wide_codes(const float* x, int n, float limit, int8_t* codes) {
  F size = set1(0);
  for (int i = 0; i < n; i += 16) {
    const F v = load(x + i);
    size = max(max(v, sub(set1(0), v)), size);
  }
  const float peak = max_lanes(size), factor = code_factor(peak, limit);
  I sum = set1_i(0);
  for (int i = 0; i < n; i += 16) {
    const I code = whole_codes(load(x + i), factor, limit);
    store_wide(codes + i / kGroup * 2 * kGroup, i % kGroup, code);
    sum = add(sum, code);
  }
  return {codes, peak / limit, sum_lanes(sum)};
}

/// What is multiplied: codes less `less`, or entries of a table.
template <int bits>
struct CodeOperands {
  using Sum = WideSum;
  using C = CodesU<bits>;
  int less;

  Sum start(const WideCodes& x) const { return wide_sum((C::kLess - less) * x.sum); }
  Codes read(const std::byte* vectors, int j) const { return C::dot_vector(vectors, j); }
};
template <int bits>
struct EntryOperands {
  using Sum = EntrySum;
  const EntryTable& table;

  Sum start(const WideCodes&) const { return entry_sum(); }
  auto read(const std::byte* vectors, int j) const {
    return lookup<bits>(CodesU<bits>::vector(vectors, j), table);
  }
};

/// dots[i][p] = x_i . operands, over the 32 inputs of the chunks [begin, end), in PT parts of
/// sixteen lanes; exact. Codes that are stored less something take all chunks of x at once.
///   vectors  of the first part and chunk 0; the others are `part_bytes` and `chunk_bytes` away
template <int bits, class Operands, int QT, int PT>
[[gnu::always_inline]] inline void wide_dots(Operands operands, const std::byte* vectors,
                                             size_t part_bytes, size_t chunk_bytes, int begin,
                                             int end, const WideCodes (&x)[QT], I (&dots)[QT][PT],
                                             Ahead& ahead) {
  typename Operands::Sum sums[QT][PT];
  COHORT_EACH_QUERY(i) {
    COHORT_EACH_PART(p) sums[i][p] = operands.start(x[i]);
  }
  for (int chunk = begin; chunk < end; ++chunk) {
    const std::byte* const first = vectors + chunk * chunk_bytes;
    COHORT_UNROLLED
    for (int j = 0; j < 8; ++j) {
      decltype(operands.read(first, j)) read[PT];
      COHORT_EACH_PART(p) read[p] = operands.read(first + p * part_bytes, j);
      if (j < bits) ahead.advance<PT * kCodeVector>();
      COHORT_EACH_QUERY(i) {
        const int8_t* const codes = x[i].codes + chunk * 2 * kGroup;
        COHORT_EACH_PART(p) sums[i][p] = wide_dot(sums[i][p], read[p], codes, j);
      }
    }
  }
  COHORT_EACH_QUERY(i) {
    COHORT_EACH_PART(p) dots[i][p] = total(sums[i][p]);
  }
}

/// A query as it meets dense keys, and coded ones.
struct Query {
  const float* floats;      // [head_dim]
  const WideCodes* groups;  // [groups]
};

/// scores[query][64] for QT queries against the keys of one block.
template <class Keys, int QT>
void dense_scores(const KvHead& head, const Query* queries, float* scores, Ahead& ahead_so_far) {
  constexpr int PT = kParts<QT>;
  const int dim = head.places.head_dim;
  Ahead ahead = ahead_so_far;  // in registers
  for (int first = 0; first < 4; first += PT) {
    F acc[QT][PT];
    COHORT_EACH_QUERY(i) {
      COHORT_EACH_PART(p) acc[i][p] = set1(0);
    }
    for (int d = 0; d < dim; ++d) {
      F k[PT];
      COHORT_EACH_PART(p) k[p] = Keys::read(head, (first + p) * dim + d);
      ahead.advance<PT * 2 * Keys::kBits>();
      COHORT_EACH_QUERY(i) {
        const F q = set1(queries[i].floats[d]);
        COHORT_EACH_PART(p) acc[i][p] = fma(k[p], q, acc[i][p]);
      }
    }
    COHORT_EACH_QUERY(i) {
      COHORT_EACH_PART(p) store(scores + i * 64 + (first + p) * 16, acc[i][p]);
    }
  }
  ahead_so_far = ahead;
}

template <class Keys, int QT>
void coded_scores(const KvHead& head, const Query* queries, float* scores, Ahead& ahead_so_far) {
  constexpr int PT = kParts<WideSum::kSums * QT>;
  constexpr size_t kPart = code_vector_bytes(Keys::kBits), kChunk = kPart * kBlockTokens / 16;
  const int group = head.places.group;
  Ahead ahead = ahead_so_far;  // in registers
  const std::byte* vectors = head.data;
  for (int g = 0; g < head.places.groups; ++g, vectors += group / kGroup * kChunk) {
    WideCodes x[QT];
    COHORT_EACH_QUERY(i) x[i] = queries[i].groups[g];
    for (int first = 0; first < 4; first += PT) {
      I dots[QT][PT];
      wide_dots<Keys::kBits>(CodeOperands<Keys::kBits>{Keys::kLess}, vectors + first * kPart, kPart,
                             kChunk, 0, group / kGroup, x, dots, ahead);
      COHORT_EACH_PART(p) {
        const Keys scales(head, g, first + p);
        COHORT_EACH_QUERY(i) {
          float* to = scores + i * 64 + (first + p) * 16;
          const F scale = set1(x[i].scale), sum = set1(x[i].scale * static_cast<float>(x[i].sum));
          const F before = g == 0 ? set1(0) : load(to);
          store(to, scales.add_group(mul(to_float(dots[i][p]), scale), sum, before));
        }
      }
    }
  }
  ahead_so_far = ahead;
}

/// The keys [begin, end) of a block that each query sees: at least one.
struct VisibleKeys {
  int begin[4], end[4];
};

/// Turns the scores of QT queries into weights, 0 for keys that they do not see, updates their
/// {max, sum} and fills in the factors for what was accumulated before. Side by side, because each
/// of them waits most of the time.
template <int QT>
void softmax_step(float* scores, const VisibleKeys& keys, float* const* states,
                  float* corrections) {
  F s[QT][4];
  float block_max[QT];
  COHORT_EACH_QUERY(i) {
    const float minus_infinity = -std::numeric_limits<float>::infinity();
    for (int key = 0; key < keys.begin[i]; ++key) scores[i * 64 + key] = minus_infinity;
    for (int key = keys.end[i]; key < 64; ++key) scores[i * 64 + key] = minus_infinity;
    for (int part = 0; part < 4; ++part) s[i][part] = load(scores + i * 64 + part * 16);
  }
  COHORT_EACH_QUERY(i) {
    block_max[i] = max_lanes(max(max(s[i][0], s[i][1]), max(s[i][2], s[i][3])));
  }
  COHORT_EACH_QUERY(i) {
    float& old_max = states[i][0];
    const float new_max = block_max[i] > old_max ? block_max[i] : old_max;
    corrections[i] = new_max == old_max ? 1.0f : exp_lanes_scalar(old_max - new_max);
    old_max = new_max;
    for (F& part : s[i]) part = exp_lanes(sub(part, set1(new_max)));
    for (int part = 0; part < 4; ++part) store(scores + i * 64 + part * 16, s[i][part]);
  }
  COHORT_EACH_QUERY(i) {
    const float sum = sum_lanes(add(add(s[i][0], s[i][1]), add(s[i][2], s[i][3])));
    states[i][1] = states[i][1] * corrections[i] + sum;
  }
}
constexpr void (*kSoftmaxSteps[4])(float*, const VisibleKeys&, float* const*, float*) = {
    softmax_step<1>, softmax_step<2>, softmax_step<3>, softmax_step<4>};

constexpr int kHalves = kBlockTokens / kGroup;  // of a block's tokens, each code vectors of its own

/// What becomes of the values of a block.
struct ValueSum {
  const VisibleKeys& keys;
  const float* weights;      // [query][64]
  const float* corrections;  // [query]: factor of what was accumulated before
  float* const* outputs;     // [query]

  /// acc[query][part] = output * correction, of the channels from `channel` on.
  template <int QT, int PT>
  void start(int channel, F (&acc)[QT][PT]) const {
    COHORT_EACH_QUERY(i) {
      const F correction = set1(corrections[i]);
      COHORT_EACH_PART(p) acc[i][p] = mul(load(outputs[i] + channel + 16 * p), correction);
    }
  }
  template <int QT, int PT>
  void finish(int channel, const F (&acc)[QT][PT]) const {
    COHORT_EACH_QUERY(i) {
      COHORT_EACH_PART(p) store(outputs[i] + channel + 16 * p, acc[i][p]);
    }
  }
};

/// PT * 16 channels from `channel` on: output = output * correction + sum of weight * value, in key
/// order.
template <class Values, int QT, int PT>
void accumulate_dense(const KvHead& head, int channel, const ValueSum& sum, Ahead& ahead_so_far) {
  Ahead ahead = ahead_so_far;  // in registers
  F acc[QT][PT];
  sum.start(channel, acc);
  const auto value = [&](int key, int p) {
    return Values::read(head.values() + key * head.places.value_row_bytes, channel / 16 + p);
  };
  // The keys that all see, and those before and behind, which only some do: slots that a query does
  // not see may hold anything.
  const int begin = *std::max_element(sum.keys.begin, sum.keys.begin + QT);
  const int end = std::max(begin, *std::min_element(sum.keys.end, sum.keys.end + QT));
  const auto one_by_one = [&](int from, int to) {
    COHORT_EACH_QUERY(i) {
      const int last = std::min(to, sum.keys.end[i]);
      for (int key = std::max(from, sum.keys.begin[i]); key < last; ++key) {
        const F w = set1(sum.weights[i * 64 + key]);
        COHORT_EACH_PART(p) acc[i][p] = fma(w, value(key, p), acc[i][p]);
      }
    }
  };
  one_by_one(0, begin);
  for (int key = begin; key < end; ++key) {
    F v[PT];
    COHORT_EACH_PART(p) v[p] = value(key, p);
    ahead.advance<PT * 2 * Values::kBits>();
    COHORT_EACH_QUERY(i) {
      const F w = set1(sum.weights[i * 64 + key]);
      COHORT_EACH_PART(p) acc[i][p] = fma(w, v[p], acc[i][p]);
    }
  }
  one_by_one(end, kBlockTokens);
  sum.finish(channel, acc);
  ahead_so_far = ahead;
}

template <class Values, int QT>
void sum_dense(const KvHead& head, const ValueSum& sum, Ahead& ahead) {
  const int end = head.places.value_stride;
  int d = 0;
  if constexpr (kParts<QT> >= 4) {
    for (; d + 64 <= end; d += 64) accumulate_dense<Values, QT, 4>(head, d, sum, ahead);
  }
  if constexpr (kParts<QT> >= 2) {
    for (; d + 32 <= end; d += 32) accumulate_dense<Values, QT, 2>(head, d, sum, ahead);
  }
  for (; d < end; d += 16) accumulate_dense<Values, QT, 1>(head, d, sum, ahead);
}

/// What weights are rounded to: to 14 bits where they meet entries of a table, so that 32 products
/// fit into a sum.
template <class Values>
constexpr float kWeightLimit = Values::kLookup ? kWideLimit / 2 : kWideLimit;

/// As accumulate_dense, of codes.
///   x        weights times scales
///   offsets  [query]: added to every channel
template <class Values, int QT, int PT>
void accumulate_codes(const KvHead& head, int channel, const ValueSum& sum,
                      const WideCodes (&x)[QT], const float* offsets, Ahead& ahead_so_far) {
  constexpr int kBits = Values::kBits;
  constexpr size_t kChunk = code_vector_bytes(kBits), kPart = kHalves * kChunk;
  const std::byte* const vectors = head.values() + channel / 16 * kPart;
  Ahead ahead = ahead_so_far;  // in registers
  I dots[QT][PT];
  F acc[QT][PT];
  if constexpr (Values::kLookup) {
    static_assert(double{kMostEntry} * kWeightLimit<Values> * kGroup <=
                  std::numeric_limits<int32_t>::max());
    const EntryTable& table = Values::table();
    sum.start(channel, acc);
    for (int half = 0; half < kHalves; ++half) {
      wide_dots<kBits>(EntryOperands<kBits>{table}, vectors, kPart, kChunk, half, half + 1, x, dots,
                       ahead);
      COHORT_EACH_QUERY(i) {
        const F scale = set1(x[i].scale * table.scale);
        COHORT_EACH_PART(p) acc[i][p] = fma(to_float(dots[i][p]), scale, acc[i][p]);
      }
    }
  } else {
    wide_dots<kBits>(CodeOperands<kBits>{0}, vectors, kPart, kChunk, 0, kHalves, x, dots, ahead);
    sum.start(channel, acc);
    COHORT_EACH_QUERY(i) {
      const F scale = set1(x[i].scale), offset = set1(offsets[i]);
      COHORT_EACH_PART(p) acc[i][p] = fma(to_float(dots[i][p]), scale, add(acc[i][p], offset));
    }
  }
  sum.finish(channel, acc);
  ahead_so_far = ahead;
}

/// All slots of the block: those that no query sees have weights of 0, and any code is a number.
template <class Values, int QT>
void sum_coded(const KvHead& head, const ValueSum& sum, Ahead& ahead) {
  const int group = head.places.group;
  for (int g = 0; g < head.places.groups; ++g) {
    float weights[QT * 64], offsets[QT];
    for (int i = 0; i < QT; ++i) {
      offsets[i] = Values::scale_weights(head, g, sum.weights + i * 64, weights + i * 64);
    }
    int8_t codes[QT][2 * kBlockTokens];
    WideCodes x[QT];
    COHORT_EACH_QUERY(i) {
      x[i] = wide_codes(weights + i * 64, kBlockTokens, kWeightLimit<Values>, codes[i]);
    }
    using Sum = std::conditional_t<Values::kLookup, EntrySum, WideSum>;
    constexpr int PT = std::min(kParts<Sum::kSums * QT>, 2);
    for (int d = g * group; d < (g + 1) * group; d += 16 * PT) {
      accumulate_codes<Values, QT, PT>(head, d, sum, x, offsets, ahead);
    }
  }
}

/// The kernels of one encoding of keys or values, by the number of queries less one.
struct KeyKernels {
  KvKind kind;
  int bits;
  void (*scores[4])(const KvHead&, const Query*, float*, Ahead&);
};
struct ValueKernels {
  KvKind kind;
  int bits;
  void (*sum[4])(const KvHead&, const ValueSum&, Ahead&);
};
template <class Keys>
constexpr KeyKernels dense_key_row() {
  return {
      KvKind::kDense,
      Keys::kBits,
      {dense_scores<Keys, 1>, dense_scores<Keys, 2>, dense_scores<Keys, 3>, dense_scores<Keys, 4>}};
}
template <class Keys>
constexpr KeyKernels coded_key_row(KvKind kind) {
  return {
      kind,
      Keys::kBits,
      {coded_scores<Keys, 1>, coded_scores<Keys, 2>, coded_scores<Keys, 3>, coded_scores<Keys, 4>}};
}
template <class Values>
constexpr ValueKernels dense_value_row() {
  return {KvKind::kDense,
          Values::kBits,
          {sum_dense<Values, 1>, sum_dense<Values, 2>, sum_dense<Values, 3>, sum_dense<Values, 4>}};
}
template <class Values>
constexpr ValueKernels coded_value_row(KvKind kind) {
  return {kind,
          Values::kBits,
          {sum_coded<Values, 1>, sum_coded<Values, 2>, sum_coded<Values, 3>, sum_coded<Values, 4>}};
}
constexpr KeyKernels kKeyKernels[] = {
    dense_key_row<DenseKeys<float>>(),
    dense_key_row<DenseKeys<uint16_t>>(),
    coded_key_row<AffineKeys<4>>(KvKind::kAffine),
    coded_key_row<AffineKeys<8>>(KvKind::kAffine),
    coded_key_row<TurboKeyCodes<2>>(KvKind::kTurbo),
    coded_key_row<TurboKeyCodes<4>>(KvKind::kTurbo),
    coded_key_row<TurboKeyCodes<5>>(KvKind::kTurbo),
    coded_key_row<TurboKeyCodes<8>>(KvKind::kTurbo),
};
constexpr ValueKernels kValueKernels[] = {
    dense_value_row<DenseValues<float>>(),
    dense_value_row<DenseValues<uint16_t>>(),
    coded_value_row<AffineValues<4>>(KvKind::kAffine),
    coded_value_row<AffineValues<8>>(KvKind::kAffine),
    coded_value_row<TurboValues<2>>(KvKind::kTurbo),
    coded_value_row<TurboValues<3>>(KvKind::kTurbo),
    coded_value_row<TurboValues<4>>(KvKind::kTurbo),
    coded_value_row<TurboValues<5>>(KvKind::kTurbo),
    coded_value_row<TurboValues<8>>(KvKind::kTurbo),
};

/// What stays the same over the blocks of a tile. Not copied: queries point into it.
struct AttendWork {
  explicit AttendWork(const AttendTile& tile);
  AttendWork(const AttendWork&) = delete;
  AttendWork& operator=(const AttendWork&) = delete;

  const AttendTile& tile;
  KvPlaces places;
  const KeyKernels* keys = kKeyKernels;
  const ValueKernels* values = kValueKernels;
  Query queries[4];
  WideCodes groups[4][kMaxHeadDim / kGroup];
  int8_t codes[4][2 * kMaxHeadDim];
};

/// `count` queries against one block.
inline void attend_block(const AttendWork& work, Ahead& ahead, int64_t block, int first, int count,
                         const VisibleKeys& keys) {
  const AttendTile& t = work.tile;
  const KvHead head{work.places, t.blocks[block] + t.kv_head * work.places.head_bytes};
  ahead.begin_block(block);
  float* states[4];
  float* outputs[4];
  float corrections[4];
  float scores[4 * 64];
  for (int i = 0; i < count; ++i) {
    states[i] = t.state + (first + i) * t.state_stride;
    outputs[i] = states[i] + kStateHeader;
  }
  work.keys->scores[count - 1](head, work.queries + first, scores, ahead);
  ahead.advance(work.places.head_bytes - work.places.scales_at);
  kSoftmaxSteps[count - 1](scores, keys, states, corrections);
  work.values->sum[count - 1](head, {keys, scores, corrections, outputs}, ahead);
}

inline AttendWork::AttendWork(const AttendTile& t) : tile(t), places(t.geometry) {
  const KvEncoding& encoding = t.geometry.encoding;
  while (keys->kind != encoding.kind || keys->bits != encoding.key_bits) ++keys;
  while (values->kind != encoding.kind || values->bits != encoding.value_bits) ++values;
  for (int i = 0; i < t.count; ++i) {
    queries[i] = {t.queries[i], groups[i]};
    for (int g = 0; g < places.groups; ++g) {
      const int at = g * places.group;
      groups[i][g] = wide_codes(t.queries[i] + at, places.group, kWideLimit, codes[i] + 2 * at);
    }
  }
}

void attend(const AttendTile& t) {
  const AttendWork work(t);
  Ahead ahead(t, work.places);
  for (int64_t block = t.first_block; block < t.last_block; ++block) {
    const int64_t base = block * kBlockTokens;
    VisibleKeys keys;
    bool together = true;  // all queries at once where all see something of the block
    for (int i = 0; i < t.count; ++i) {
      const int64_t from = base < t.keep ? 0 : t.begin[i] - base;
      keys.begin[i] = static_cast<int>(std::clamp<int64_t>(from, 0, kBlockTokens));
      keys.end[i] = static_cast<int>(std::clamp<int64_t>(t.end[i] - base, 0, kBlockTokens));
      together = together && keys.begin[i] < keys.end[i];
    }
    if (together) {
      attend_block(work, ahead, block, 0, t.count, keys);
      continue;
    }
    for (int i = 0; i < t.count; ++i) {
      if (keys.begin[i] >= keys.end[i]) continue;
      attend_block(work, ahead, block, i, 1, {{keys.begin[i]}, {keys.end[i]}});
    }
  }
}

void merge(float* a, const float* b, int value_stride) {
  const float new_max = a[0] > b[0] ? a[0] : b[0];
  if (b[0] == -std::numeric_limits<float>::infinity()) return;
  const float factor_a = exp_lanes_scalar(a[0] - new_max);
  const float factor_b = exp_lanes_scalar(b[0] - new_max);
  a[1] = a[1] * factor_a + b[1] * factor_b;
  a[0] = new_max;
  for (int d = kStateHeader; d < kStateHeader + value_stride; d += 16) {
    store(a + d, fma(load(b + d), set1(factor_b), mul(load(a + d), set1(factor_a))));
  }
}
