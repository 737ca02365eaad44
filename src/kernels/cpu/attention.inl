// Attention over the blocks of a row, for every encoding. Part of kernels.inl.
//
// An encoding brings two types. Its keys are loaded sixteen tokens at a channel, its values sixteen
// channels of a token; either as they are, or as codes of which a whole group shares a scale. Then
// sums run over codes and meet the scales once per group.

/// Where a kv head keeps what in a block: the same for all blocks of a tile.
struct KvPlaces {
  explicit KvPlaces(const KvGeometry& geometry)
      : head_dim(geometry.head_dim),
        group(geometry.coded() ? geometry.encoding.group : head_dim),
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
  // And at least all keys, which are read in several places at a time.
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

/// The table that makes codes numbers.
struct Numbers {
  explicit constexpr Numbers(int bits) {
    for (int i = 0; i < 16; ++i) table[i] = static_cast<float>(i % (1 << bits));
  }
  float table[16] = {};
};

/// The sixteen codes of a little-endian bit stream.
template <int bits>
inline F code_floats(const std::byte* stream) {
  if constexpr (bits <= kBitsByTable) {
    static constexpr Numbers kNumbers(bits);
    return lookup<bits>(stream, kNumbers.table);
  } else {
    return to_float(unpack<bits>(stream));
  }
}

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

/// scores[query][64] for QT queries against the keys of one block.
///   group_sums  per query, the sums of its channels by group (coded keys)
template <class Keys, int QT>
void block_scores(const KvHead& head, const float* const* queries, const float* const* group_sums,
                  float* scores, Ahead& ahead_so_far) {
  constexpr int PT = kParts<QT>;
  const int dim = head.places.head_dim, group = head.places.group;
  Ahead ahead = ahead_so_far;  // in registers
  const auto dots = [&](int first, int g) {
    F acc[QT][PT];
    COHORT_EACH_QUERY(i) {
      COHORT_EACH_PART(p) acc[i][p] = set1(0);
    }
    for (int d = g * group; d < (g + 1) * group; ++d) {
      F k[PT];
      COHORT_EACH_PART(p) k[p] = Keys::read(head, (first + p) * dim + d);
      ahead.advance<PT * 2 * Keys::kBits>();
      COHORT_EACH_QUERY(i) {
        const F q = set1(queries[i][d]);
        COHORT_EACH_PART(p) acc[i][p] = fma(k[p], q, acc[i][p]);
      }
    }
    COHORT_EACH_PART(p) {
      float* to = scores + (first + p) * 16;
      if constexpr (Keys::kCoded) {
        const Keys scales(head, g, first + p);
        COHORT_EACH_QUERY(i) {
          const F before = g == 0 ? set1(0) : load(to + i * 64);
          acc[i][p] = scales.add_group(acc[i][p], set1(group_sums[i][g]), before);
        }
      }
      COHORT_EACH_QUERY(i) store(to + i * 64, acc[i][p]);
    }
  };
  for (int g = 0; g * group < dim; ++g) {
    for (int first = 0; first < 4; first += PT) dots(first, g);
  }
  ahead_so_far = ahead;
}

/// Turns the scores of QT queries into weights for keys [begin, end) of the block, updates their
/// {max, sum} and fills in the factors for what was accumulated before. Side by side, because each
/// of them waits most of the time.
template <int QT>
void softmax_step(float* scores, int begin, int end, float* const* states, float* corrections) {
  F s[QT][4];
  float block_max[QT];
  COHORT_EACH_QUERY(i) {
    const float minus_infinity = -std::numeric_limits<float>::infinity();
    for (int key = 0; key < begin; ++key) scores[i * 64 + key] = minus_infinity;
    for (int key = end; key < 64; ++key) scores[i * 64 + key] = minus_infinity;
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
constexpr void (*kSoftmaxSteps[4])(float*, int, int, float* const*, float*) = {
    softmax_step<1>, softmax_step<2>, softmax_step<3>, softmax_step<4>};

/// The keys [begin, end) of a block and what becomes of their values.
struct ValueSum {
  int begin, end;
  const float* weights;      // [query][64]
  const float* corrections;  // [query]: factor of what was accumulated before
  const float* offsets;      // [query]: added to every channel
  float* const* outputs;     // [query]
};

/// PT * 16 channels from `channel` on: output = output * correction + offset + sum of
/// weight * value, in key order.
template <class Values, int QT, int PT>
void accumulate_values(const KvHead& head, int channel, const ValueSum& sum, Ahead& ahead_so_far) {
  Ahead ahead = ahead_so_far;  // in registers
  F acc[QT][PT];
  COHORT_EACH_QUERY(i) {
    COHORT_EACH_PART(p) {
      const F before = mul(load(sum.outputs[i] + channel + 16 * p), set1(sum.corrections[i]));
      acc[i][p] = Values::kCoded ? add(before, set1(sum.offsets[i])) : before;
    }
  }
  const Values values(head);
  const size_t row_bytes = head.places.value_row_bytes;
  const std::byte* row = head.values() + sum.begin * row_bytes;
  for (int key = sum.begin; key < sum.end; ++key, row += row_bytes) {
    F v[PT];
    COHORT_EACH_PART(p) v[p] = values.read(row, channel / 16 + p);
    ahead.advance<PT * 2 * Values::kBits>();
    COHORT_EACH_QUERY(i) {
      const F w = set1(sum.weights[i * 64 + key]);
      COHORT_EACH_PART(p) acc[i][p] = fma(w, v[p], acc[i][p]);
    }
  }
  COHORT_EACH_QUERY(i) {
    COHORT_EACH_PART(p) store(sum.outputs[i] + channel + 16 * p, acc[i][p]);
  }
  ahead_so_far = ahead;
}

template <class Values, int QT>
void accumulate_channels(const KvHead& head, int begin, int end, const ValueSum& sum,
                         Ahead& ahead) {
  int d = begin;
  if constexpr (kParts<QT> >= 4) {
    for (; d + 64 <= end; d += 64) accumulate_values<Values, QT, 4>(head, d, sum, ahead);
  }
  if constexpr (kParts<QT> >= 2) {
    for (; d + 32 <= end; d += 32) accumulate_values<Values, QT, 2>(head, d, sum, ahead);
  }
  for (; d < end; d += 16) accumulate_values<Values, QT, 1>(head, d, sum, ahead);
}

template <class Values, int QT>
void block_values(const KvHead& head, const ValueSum& sum, Ahead& ahead) {
  if constexpr (!Values::kCoded) {
    accumulate_channels<Values, QT>(head, 0, head.places.value_stride, sum, ahead);
  } else {
    const int group = head.places.group;
    for (int g = 0; g < head.places.groups; ++g) {
      float weights[QT * 64], offsets[QT];
      for (int i = 0; i < QT; ++i) {
        offsets[i] = Values::scale_weights(head, g, sum.weights + i * 64, weights + i * 64);
      }
      const ValueSum scaled{sum.begin, sum.end, weights, sum.corrections, offsets, sum.outputs};
      accumulate_channels<Values, QT>(head, g * group, (g + 1) * group, scaled, ahead);
    }
  }
}

/// The kernels of one encoding of keys or values, by the number of queries less one.
struct KeyKernels {
  KvKind kind;
  int bits;
  void (*scores[4])(const KvHead&, const float* const*, const float* const*, float*, Ahead&);
};
struct ValueKernels {
  KvKind kind;
  int bits;
  void (*sum[4])(const KvHead&, const ValueSum&, Ahead&);
};
template <class Keys>
constexpr KeyKernels keys_row(KvKind kind) {
  return {
      kind,
      Keys::kBits,
      {block_scores<Keys, 1>, block_scores<Keys, 2>, block_scores<Keys, 3>, block_scores<Keys, 4>}};
}
template <class Values>
constexpr ValueKernels values_row(KvKind kind) {
  return {kind,
          Values::kBits,
          {block_values<Values, 1>, block_values<Values, 2>, block_values<Values, 3>,
           block_values<Values, 4>}};
}
constexpr KeyKernels kKeyKernels[] = {
    keys_row<DenseKeys<float>>(KvKind::kDense), keys_row<DenseKeys<uint16_t>>(KvKind::kDense),
    keys_row<AffineKeys<4>>(KvKind::kAffine),   keys_row<AffineKeys<8>>(KvKind::kAffine),
    keys_row<TurboKeyCodes<2>>(KvKind::kTurbo), keys_row<TurboKeyCodes<4>>(KvKind::kTurbo),
    keys_row<TurboKeyCodes<5>>(KvKind::kTurbo), keys_row<TurboKeyCodes<8>>(KvKind::kTurbo),
};
constexpr ValueKernels kValueKernels[] = {
    values_row<DenseValues<float>>(KvKind::kDense),
    values_row<DenseValues<uint16_t>>(KvKind::kDense),
    values_row<AffineValues<4>>(KvKind::kAffine),
    values_row<AffineValues<8>>(KvKind::kAffine),
    values_row<TurboValues<2>>(KvKind::kTurbo),
    values_row<TurboValues<3>>(KvKind::kTurbo),
    values_row<TurboValues<4>>(KvKind::kTurbo),
    values_row<TurboValues<5>>(KvKind::kTurbo),
    values_row<TurboValues<8>>(KvKind::kTurbo),
};

/// What stays the same over the blocks of a tile.
struct AttendWork {
  const AttendTile& tile;
  KvPlaces places;
  const KeyKernels* keys;
  const ValueKernels* values;
  float group_sums[4][kMaxHeadDim / 32];  // of the queries
};

/// `count` queries against one block. All see the same keys [begin, end) of it.
inline void attend_block(const AttendWork& work, Ahead& ahead, int64_t block, int first, int count,
                         int begin, int end) {
  const AttendTile& t = work.tile;
  const KvHead head{work.places, t.blocks[block] + t.kv_head * work.places.head_bytes};
  ahead.begin_block(block);
  const float* sums[4];
  float* states[4];
  float* outputs[4];
  float corrections[4];
  float scores[4 * 64];
  for (int i = 0; i < count; ++i) {
    sums[i] = work.group_sums[first + i];
    states[i] = t.state + (first + i) * t.state_stride;
    outputs[i] = states[i] + kStateHeader;
  }
  work.keys->scores[count - 1](head, t.queries + first, sums, scores, ahead);
  ahead.advance(work.places.head_bytes - work.places.scales_at);
  kSoftmaxSteps[count - 1](scores, begin, end, states, corrections);
  work.values->sum[count - 1](head, {begin, end, scores, corrections, nullptr, outputs}, ahead);
}

inline AttendWork attend_work(const AttendTile& tile) {
  const KvEncoding& encoding = tile.geometry.encoding;
  AttendWork work{tile, KvPlaces(tile.geometry), kKeyKernels, kValueKernels, {}};
  while (work.keys->kind != encoding.kind || work.keys->bits != encoding.key_bits) ++work.keys;
  while (work.values->kind != encoding.kind || work.values->bits != encoding.value_bits) {
    ++work.values;
  }
  for (int i = 0; i < tile.count; ++i) {
    for (int g = 0; g < tile.geometry.groups(); ++g) {
      F sum = set1(0);
      for (int d = 0; d < encoding.group; d += 16) {
        sum = add(sum, load(tile.queries[i] + g * encoding.group + d));
      }
      work.group_sums[i][g] = sum_lanes(sum);
    }
  }
  return work;
}

void attend(const AttendTile& t) {
  const AttendWork work = attend_work(t);
  Ahead ahead(t, work.places);
  for (int64_t block = t.first_block; block < t.last_block; ++block) {
    const int64_t base = block * kBlockTokens;
    int begin[4], end[4];
    bool together = true;  // four queries at once only where all see the same keys of the block
    for (int i = 0; i < t.count; ++i) {
      const int64_t from = base < t.keep ? 0 : t.begin[i] - base;
      begin[i] = static_cast<int>(std::clamp<int64_t>(from, 0, kBlockTokens));
      end[i] = static_cast<int>(std::clamp<int64_t>(t.end[i] - base, 0, kBlockTokens));
      together = together && begin[i] == begin[0] && end[i] == end[0];
    }
    if (together) {
      if (begin[0] < end[0]) attend_block(work, ahead, block, 0, t.count, begin[0], end[0]);
      continue;
    }
    for (int i = 0; i < t.count; ++i) {
      if (begin[i] < end[i]) attend_block(work, ahead, block, i, 1, begin[i], end[i]);
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
