// What every layer cache promises, over all kinds, encodings, windows and changes of precision.

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.h"
#include "tests/kv/filled_caches.h"

namespace cohort::kv::test {
namespace {

constexpr int64_t kTokens = 200;

using Image = std::vector<std::byte>;

/// The images of a cache that grew a token at a time, by offset.
std::vector<Image> grown(OneLayer& model) {
  RowCache row = model.row();
  std::vector<Image> images{image(row.layer(0))};
  for (int64_t i = 0; i < kTokens; ++i) {
    append(row, 1, model.cpu);
    images.push_back(image(row.layer(0)));
    model.check({&row});
  }
  return images;
}

/// Runs `body(case)` for every case, in every form of window and encoding, and looks that nothing
/// is left when its rows are gone.
template <class Body>
void for_each_case(Body body) {
  std::vector<LayerCase> cases = layer_cases();
  cases.push_back(windowed_turbo());
  for (const LayerCase& c : cases) {
    SCOPED_TRACE(describe(c));
    OneLayer model(c);
    body(c, model);
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(model.used_bytes(), 0U);
    model.check({});
  }
}

TEST(CacheContract, AppendsInAnySplitGiveEqualBytes) {
  for_each_case([](const LayerCase&, OneLayer& model) {
    const std::vector<Image> want = grown(model);
    std::mt19937 random(1);
    for (const int most : {7, 90, 200}) {
      RowCache row = model.row();
      while (row.offset() < kTokens) {
        const int64_t tokens = 1 + static_cast<int64_t>(random() % most);
        append(row, std::min(tokens, kTokens - row.offset()), model.cpu);
        ASSERT_EQ(image(row.layer(0)), want[row.offset()]) << row.offset();
        model.check({&row});
      }
    }
  });
}

TEST(CacheContract, WhatIsReservedAndNotCommittedIsForgotten) {
  for_each_case([](const LayerCase& c, OneLayer& model) {
    const std::vector<Image> want = grown(model);
    RowCache row = model.row();
    const auto attempt = [&](int64_t tokens, int64_t committed) {
      tokens = std::min(tokens, row.max_append_tokens());
      row.reserve(tokens);
      write_tokens(row.layer(0), tokens);
      row.commit(c.attention() != nullptr ? std::min(tokens, committed) : 0);
      row.maintain(model.cpu);
      model.check({&row});
      ASSERT_EQ(image(row.layer(0)), want[row.offset()]);
      ASSERT_EQ(c.attention() ? state_bytes(row.layer(0)) : 0, model.used_bytes());
    };
    for (const auto& [reserved, committed] :
         {std::pair{1000, 30}, {50, 0}, {200, 34}, {70, 36}, {64, 63}, {1, 1}}) {
      attempt(reserved, committed);
    }
    append(row, kTokens - row.offset(), model.cpu);
    EXPECT_EQ(image(row.layer(0)), want[kTokens]);
  });
}

TEST(CacheContract, ReservingAgainTakesNothingMore) {
  for_each_case([](const LayerCase&, OneLayer& model) {
    RowCache row = model.row(50);
    const int64_t tokens = std::min<int64_t>(90, row.max_append_tokens());
    row.reserve(tokens);
    const size_t bytes = model.used_bytes();
    row.reserve(tokens);  // a forward that is tried again
    row.reserve(1);
    EXPECT_EQ(model.used_bytes(), bytes);
    model.check({&row});
  });
}

TEST(CacheContract, ACacheThatWasCutGrowsLikeAFreshOne) {
  for_each_case([](const LayerCase&, OneLayer& model) {
    const std::vector<Image> want = grown(model);
    RowCache donor = model.row(kTokens);
    for (int64_t offset = donor.trim_floor(); offset <= kTokens; ++offset) {
      RowCache row = donor.clone();
      row.trim(offset);
      ASSERT_EQ(row.offset(), offset);
      model.check({&row, &donor});
      if (offset < donor.minimum_reusable_offset()) continue;
      ASSERT_EQ(image(row.layer(0)), want[offset]) << offset;
      append(row, std::min<int64_t>(50, kTokens - offset), model.cpu);
      ASSERT_EQ(image(row.layer(0)), want[row.offset()]) << offset;
    }
    EXPECT_EQ(image(donor.layer(0)), want[kTokens]);
    for (const int64_t offset : {donor.trim_floor() - 1, kTokens + 1}) {
      EXPECT_THROW(donor.layer(0).trim(offset), Error);
    }
    EXPECT_EQ(donor.offset(), kTokens);
  });
}

TEST(CacheContract, ACacheIsCutAsFarAsItsBlocksReach) {
  for_each_case([](const LayerCase& c, OneLayer& model) {
    RowCache row = model.row(kTokens);
    const LayerSpec* spec = c.attention();
    if (spec == nullptr) {
      EXPECT_EQ(row.trim_floor(), kTokens);
    } else if (spec->window == 0) {
      EXPECT_EQ(row.trim_floor(), 0);
    } else {
      // The first offset whose next query sees no block that was given back.
      int64_t floor = kTokens;
      const auto visible = [&](int64_t offset) {
        for (int64_t p = std::max<int64_t>(0, offset - spec->window + 1); p < offset; ++p) {
          if (row.attention(0).block(static_cast<size_t>(p / 64)) == nullptr) return false;
        }
        return true;
      };
      while (floor > 0 && visible(floor - 1) &&
             row.attention(0).block(static_cast<size_t>((floor - 1) / 64)) != nullptr) {
        --floor;
      }
      EXPECT_EQ(row.trim_floor(), floor);
    }
  });
}

TEST(CacheContract, ClonesShareUntilOneWritesAndThenOnlyTheOpenBlockIsCopied) {
  for_each_case([](const LayerCase& c, OneLayer& model) {
    for (const int64_t offset : {1, 40, 64, 100, 128, 150}) {
      RowCache first = model.row(offset);
      const Image before = image(first.layer(0));
      const size_t bytes = model.used_bytes();
      RowCache second = first.clone();
      EXPECT_EQ(second.offset(), offset);
      EXPECT_EQ(second.layer(0).signature(), first.layer(0).signature());
      EXPECT_EQ(second.minimum_reusable_offset(), first.minimum_reusable_offset());
      ASSERT_EQ(image(second.layer(0)), before);
      EXPECT_EQ(model.used_bytes(), bytes) << "a clone takes no block";
      model.check({&first, &second});

      second.reserve(1);
      if (c.attention() != nullptr) {
        const auto open = static_cast<size_t>(offset / 64);
        EXPECT_EQ(model.used_bytes(), bytes + second.attention(0).geometry().block_bytes());
        for (size_t i = 0; i < open; ++i) {
          EXPECT_EQ(first.attention(0).block(i), second.attention(0).block(i));
        }
        if (offset % 64 != 0) {
          EXPECT_NE(first.attention(0).block(open), second.attention(0).block(open));
        }
      }
      write_tokens(second.layer(0), 1, 5);
      ASSERT_EQ(image(first.layer(0)), before);
      second.commit(1);
      second.maintain(model.cpu);
      append(second, 70, model.cpu, 5);
      ASSERT_EQ(image(first.layer(0)), before);
      const Image continued = image(second.layer(0));
      append(first, 90, model.cpu, 9);
      ASSERT_EQ(image(second.layer(0)), continued);
      model.check({&first, &second});
      { RowCache gone = std::move(first); }
      ASSERT_EQ(image(second.layer(0)), continued);
      model.check({&second});
    }
  });
}

TEST(CacheContract, AClonesBlocksAreNotThoseThatTheFirstReserved) {
  for_each_case([](const LayerCase&, OneLayer& model) {
    RowCache first = model.row(60);
    RowCache same = model.row(60);
    first.reserve(std::min<int64_t>(30, first.max_append_tokens()));
    RowCache second = first.clone();
    append(second, 40, model.cpu, 5);
    append(same, 40, model.cpu, 5);
    write_tokens(first.layer(0), std::min<int64_t>(30, first.max_append_tokens()), 7);
    EXPECT_EQ(image(second.layer(0)), image(same.layer(0)));
    model.check({&first, &second, &same});
  });
}

TEST(CacheContract, BytesAreThoseOfThePool) {
  for_each_case([](const LayerCase& c, OneLayer& model) {
    RowCache row = model.row();
    for (int64_t i = 0; i < kTokens; ++i) {
      append(row, 1, model.cpu);
      if (c.attention() == nullptr) {
        EXPECT_EQ(row.bytes_per_token(), 0U);
        EXPECT_EQ(model.used_bytes(), 0U);
        continue;
      }
      ASSERT_EQ(state_bytes(row.layer(0)), model.used_bytes());
      const size_t blocks = row.layer(0).arrays().size();
      ASSERT_EQ(blocks * 64 * row.bytes_per_token(), model.used_bytes());
      size_t held = 0;
      for (size_t b = 0; b < row.attention(0).blocks(); ++b) {
        held += row.attention(0).holds(b, row.offset());
      }
      ASSERT_EQ(held, blocks);
    }
  });
}

TEST(CacheContract, NoTwoConfigurationsShareASignature) {
  std::set<std::string> seen;
  const auto once = [&](const AnyLayerSpec& spec, const LayerPrecision& precision) {
    const std::string signature = describe({spec, precision});
    EXPECT_TRUE(seen.insert(signature).second) << signature;
  };
  for (const LayerCase& c : layer_cases()) once(c.spec, c.precision);
  using namespace kernels::cpu;
  const LayerPrecision bf16{dense_kv(true), dense_kv(true), 0};
  once(LayerSpec{3, 24}, bf16);
  once(LayerSpec{2, 48}, bf16);
  once(LayerSpec{2, 24, 101}, bf16);
  once(LayerSpec{2, 24, 70, 64}, bf16);
  once(LayerSpec{2, 64}, {dense_kv(true), affine_kv(8, 64), 101});
  once(LayerSpec{2, 64}, {affine_kv(4, 64), affine_kv(8, 64), 100});
  once(LayerSpec{2, 64}, {dense_kv(true), turbo_kv(8, 5), 100});
  once(RecurrentSpec{5, 3, 2, 4, 6, 8}, {});
}

TEST(CacheContract, ThePrecisionChangesAtOneOffset) {
  for_each_case([](const LayerCase& c, OneLayer& model) {
    RowCache row = model.row();
    const LayerPrecision& precision = c.precision;
    if (c.attention() == nullptr || !precision.changes()) {
      EXPECT_EQ(row.max_append_tokens(), kNoLimit);
      append(row, kTokens, model.cpu);
      EXPECT_EQ(row.minimum_reusable_offset(), 0);
      return;
    }
    const LayerSpec& spec = *c.attention();
    EXPECT_EQ(row.max_append_tokens(), precision.start);
    append(row, precision.start - 1, model.cpu);
    EXPECT_EQ(row.max_append_tokens(), 1);
    EXPECT_THROW(row.reserve(2), Error);
    EXPECT_EQ(row.attention(0).geometry().encoding, precision.first);
    row.reserve(1);
    write_tokens(row.layer(0), 1);
    row.commit(1);
    EXPECT_EQ(row.max_append_tokens(), 0);
    EXPECT_EQ(row.minimum_reusable_offset(), 0);
    EXPECT_THROW(row.reserve(1), Error);

    const RowCache dense = row.clone();
    row.maintain(model.cpu);
    EXPECT_EQ(row.max_append_tokens(), kNoLimit);
    EXPECT_EQ(row.minimum_reusable_offset(), precision.start);
    EXPECT_EQ(row.attention(0).geometry().encoding, precision.then);
    model.check({&row, &dense});

    // As if what attention read before had been stored in the new encoding.
    OneLayer other({spec, {precision.then, precision.then, 0}});
    RowCache wanted = other.row();
    const auto& from = static_cast<const AttentionCache&>(dense.layer(0));
    std::vector<float> k(spec.head_dim), v(spec.head_dim);
    for (int64_t p = 0; p < precision.start; ++p) {
      wanted.reserve(1);
      for (int h = 0; h < spec.kv_heads && from.block(p / 64) != nullptr; ++h) {
        load_kv(from.geometry(), from.block(p / 64), h, static_cast<int>(p % 64), k.data(),
                v.data());
        const auto view = wanted.attention(0).view();
        store_kv(spec.geometry(view.encoding), view.blocks[p / 64], h, static_cast<int>(p % 64),
                 k.data(), v.data());
      }
      wanted.commit(1);
    }
    EXPECT_EQ(image(row.layer(0)), image(wanted.layer(0)));
  });
}

TEST(CacheContract, ARowMovesItsLayersTogether) {
  std::vector<AnyLayerSpec> specs;
  RowPrecision precision;
  for (const LayerCase& c : layer_cases()) {
    specs.push_back(c.spec);
    precision.push_back(c.precision);
  }
  kernels::cpu::Cpu cpu(2);
  KvMemory memory(specs);
  {
    RowCache row = memory.new_row(precision);
    EXPECT_EQ(row.max_append_tokens(), 64);
    append(row, 63, cpu);
    EXPECT_EQ(row.max_append_tokens(), 1);
    append(row, 17, cpu);
    EXPECT_EQ(row.max_append_tokens(), 20);
    EXPECT_EQ(row.minimum_reusable_offset(), 64);
    append(row, 70, cpu);
    EXPECT_EQ(row.minimum_reusable_offset(), 100);
    EXPECT_EQ(row.trim_floor(), 150) << "recurrent layers are not cut";
    RowCache copy = row.clone();
    append(copy, 3, cpu);
    EXPECT_EQ(row.offset(), 150);
    BlockCensus census;
    row.check_integrity(census);
    copy.check_integrity(census);
    memory.pools().check_integrity(census);
    for (size_t i = 0; i < specs.size(); ++i) {
      OneLayer alone({specs[i], precision[i]});
      RowCache one = alone.row(150);
      EXPECT_EQ(image(row.layer(i)), image(one.layer(0))) << i;
    }
  }
  EXPECT_EQ(memory.pools().used_bytes(), 0U);
}

}  // namespace
}  // namespace cohort::kv::test
