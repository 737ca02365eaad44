// Saving and restoring every kind of cache, in both forms.

#include "kv/cache_kinds.h"

#include <gtest/gtest.h>

#include <set>

#include "base/bit_stream.h"
#include "base/error.h"
#include "model/safetensors.h"
#include "tests/kv/filled_caches.h"
#include "tests/kv/records.h"

namespace cohort::kv::test {
namespace {

using kernels::cpu::affine_kv;
using kernels::cpu::dense_kv;
using kernels::cpu::turbo_kv;

RowCache restored(const Record& record, OneLayer& model) {
  return RowRecord(record).restore(model.memory, model.precision);
}

/// The message of the error that restoring `record` must give.
std::string refusal_of(const Record& record, OneLayer& model) {
  const size_t bytes = model.used_bytes();
  try {
    restored(record, model);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest) << error.what();
    EXPECT_EQ(model.used_bytes(), bytes) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "it was restored";
  return "";
}

TEST(CacheKinds, TheCasesOfTheseTestsAreAllRowsOfTheTable) {
  std::set<std::string_view> tested, table;
  for (const LayerCase& c : layer_cases()) {
    OneLayer model(c);
    const RowCache row = model.row();
    for (const CacheForm form : {kPortable, kPaged}) {
      tested.insert(kind_of(row.layer(0), form).name);
    }
  }
  for (const CacheKind& kind : cache_kinds()) EXPECT_TRUE(table.insert(kind.name).second);
  EXPECT_EQ(tested, table);
}

TEST(CacheKinds, ACacheOfNoKindIsRefused) {
  const LayerCase cases[] = {
      windowed_turbo(),
      {LayerSpec{2, 64}, {affine_kv(4, 64), affine_kv(8, 64), 100}},
      {LayerSpec{2, 64}, {dense_kv(true), dense_kv(false), 100}},
  };
  for (const LayerCase& c : cases) {
    OneLayer model(c);
    const RowCache row = model.row(50);
    try {
      RowWriter(row, kPortable);
      FAIL() << describe(c);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
      EXPECT_NE(std::string(error.what()).find(describe(c)), std::string::npos) << error.what();
    }
    EXPECT_EQ(kind_of(row.layer(0), kPaged).name, "paged");
  }
}

TEST(CacheKinds, ARestoredCacheIsSavedAsTheSameBytesAndGoesOnAsTheFirst) {
  std::vector<LayerCase> cases = layer_cases();
  cases.push_back(windowed_turbo());
  for (const LayerCase& c : cases) {
    for (const CacheForm form : {kPortable, kPaged}) {
      if (form == kPortable && describe(c) == describe(windowed_turbo())) continue;
      for (const int64_t offset : {0, 1, 63, 64, 65, 100, 101, 150, 200}) {
        SCOPED_TRACE(fmt::format("{} form {} at {}", describe(c), static_cast<int>(form), offset));
        OneLayer model(c), other(c);
        RowCache row = model.row(offset);
        const Record record = record_of(row, form);
        RowCache copy = restored(record, other);
        other.check({&copy});
        ASSERT_EQ(copy.offset(), offset);
        EXPECT_EQ(image(copy.layer(0)), image(row.layer(0)));
        EXPECT_EQ(other.used_bytes(), model.used_bytes());
        EXPECT_EQ(copy.minimum_reusable_offset(), row.minimum_reusable_offset());
        EXPECT_EQ(copy.trim_floor(), row.trim_floor());
        EXPECT_EQ(copy.max_append_tokens(), row.max_append_tokens());
        ASSERT_TRUE(record_of(copy, form) == record);
        append(row, 90, model.cpu, 3);
        append(copy, 90, other.cpu, 3);
        ASSERT_EQ(image(copy.layer(0)), image(row.layer(0)));
        other.check({&copy});
      }
    }
  }
}

TEST(CacheKinds, ARowThatIsStillToBeConvertedIsRestoredAsSuch) {
  for (const LayerCase& c : layer_cases()) {
    if (!c.precision.changes()) continue;
    for (const CacheForm form : {kPortable, kPaged}) {
      OneLayer model(c), other(c);
      RowCache row = model.row(c.precision.start - 1);
      row.reserve(1);
      write_tokens(row.layer(0), 1);
      row.commit(1);
      RowCache copy = restored(record_of(row, form), other);
      EXPECT_EQ(copy.max_append_tokens(), 0);
      row.maintain(model.cpu);
      copy.maintain(other.cpu);
      EXPECT_EQ(image(copy.layer(0)), image(row.layer(0)));
      EXPECT_EQ(copy.minimum_reusable_offset(), c.precision.start);
      other.check({&copy});
    }
  }
}

TEST(CacheKinds, ATrimmedOrSharedCacheIsSavedLikeAnyOther) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(describe(c));
    OneLayer model(c), other(c);
    RowCache row = model.row(200);
    RowCache clone = row.clone();
    clone.trim(std::max(clone.trim_floor(), clone.minimum_reusable_offset()));
    row.reserve(70);  // what is only reserved is not saved
    RowCache copy = restored(record_of(clone, kPortable), other);
    EXPECT_EQ(image(copy.layer(0)), image(clone.layer(0)));
    RowCache paged = restored(record_of(row, kPaged), other);
    EXPECT_EQ(image(paged.layer(0)), image(row.layer(0)));
    other.check({&copy, &paged});
  }
}

/// The header of the first cache of a row of that many tokens.
boost::json::object header(const LayerCase& c, CacheForm form, int64_t tokens) {
  OneLayer model(c);
  return SavedCache(model.row(tokens).layer(0), form).header(0);
}

TEST(CacheKinds, HeadersSayWhatACacheIs) {
  const auto expect = [](const boost::json::object& found, std::string_view text) {
    EXPECT_EQ(found, boost::json::parse(text).as_object()) << boost::json::serialize(found);
  };
  const auto fixed = [](const LayerSpec& spec, const kernels::cpu::KvEncoding& encoding) {
    return LayerCase{spec, {encoding, encoding, 0}};
  };
  expect(header(fixed({2, 24}, dense_kv(true)), kPortable, 5),
         R"({"kind": "kv", "signature": "kv:plain:bf16:2x24", "offset": 5,
             "minimumReusableOffset": 0, "tensors": [0, 1]})");
  expect(header(fixed({2, 24, 70, 65}, dense_kv(false)), kPortable, 300),
         R"({"kind": "rotating", "signature": "kv:rotating-plain:f32:2x24:w70:keep65",
             "offset": 300, "minimumReusableOffset": 0, "window": 70, "keep": 65,
             "firstPosition": 192, "tensors": [0, 1]})");
  expect(header({LayerSpec{1, 64}, {dense_kv(true), affine_kv(8, 32), 100}}, kPortable, 99),
         R"({"kind": "delayed-qkv", "signature": "kv:delayed-quant:8:32:1x64:start100:plain:bf16",
             "offset": 99, "minimumReusableOffset": 0, "start": 100, "converted": false,
             "tensors": [0, 1]})");
  expect(header({LayerSpec{1, 64}, {dense_kv(true), affine_kv(8, 32), 100}}, kPortable, 100),
         R"({"kind": "delayed-qkv", "signature": "kv:delayed-quant:8:32:1x64:start100:plain:bf16",
             "offset": 100, "minimumReusableOffset": 100, "start": 100, "converted": true,
             "bits": 8, "groupSize": 32, "tensors": [0, 1, 2, 3, 4, 5]})");
  expect(header(fixed({2, 64}, turbo_kv(8, 3)), kPortable, 64),
         R"({"kind": "turboquant", "signature": "kv:turboquant:8:3:2x64", "offset": 64,
             "minimumReusableOffset": 0, "kBits": 8, "vBits": 3, "groupSize": 32,
             "tensors": [0, 1, 2, 3, 4]})");
  expect(header(fixed({2, 64, 30, 1}, affine_kv(4, 64)), kPaged, 230),
         R"({"kind": "paged", "signature": "kv:rotating-quant:4:64:2x64:w30:keep1", "offset": 230,
             "minimumReusableOffset": 0, "window": 30, "keep": 1, "firstPosition": 192, "bits": 4,
             "groupSize": 64, "tensors": [0],
             "paged": {"capacityTokens": 256, "blockSize": 64, "blockTable": [0, null, null, 1],
                       "numBlocks": 2, "headDim": 64, "vHeadDim": 64, "numKvHeads": 2,
                       "dtype": "U8", "direct": true}})");
  expect(header({RecurrentSpec{5, 3, 2, 4, 6, 7}, {}}, kPaged, 70),
         R"({"kind": "ssm", "signature": "ssm:conv3x5:state2x4x6:open7", "offset": 70,
             "minimumReusableOffset": 0, "tensors": [0, 1, 2]})");
}

TEST(CacheKinds, AHeaderThatIsNotTheCachesIsRefused) {
  for (const LayerCase& c : layer_cases()) {
    for (const CacheForm form : {kPortable, kPaged}) {
      SCOPED_TRACE(describe(c));
      OneLayer model(c);
      const Record record = record_of(model.row(150), form);
      const boost::json::object whole = header_of(record);
      const auto expect_refused = [&](std::string_view object, std::string_view key,
                                      const boost::json::value& value) {
        boost::json::object changed = whole;
        boost::json::object* at = &changed["caches"].at(0).as_object();
        if (!object.empty()) at = &(*at)[object].as_object();
        (*at)[key] = value;
        if (changed == whole) return;
        EXPECT_NE(refusal_of(with_header(record, changed), model), "") << key;
      };
      for (const auto& field : whole.at("caches").at(0).as_object()) {
        for (const boost::json::value& value :
             {boost::json::value(nullptr), boost::json::value(-1), boost::json::value(1510),
              boost::json::value(1.5), boost::json::value("kv"), boost::json::value(true),
              boost::json::value(INT64_MAX), boost::json::value(boost::json::array{0, 0})}) {
          expect_refused("", field.key(), value);
          if (!field.value().is_object()) continue;
          for (const auto& inner : field.value().get_object()) {
            expect_refused(field.key(), inner.key(), value);
          }
        }
        boost::json::object changed = whole;
        changed["caches"].at(0).as_object().erase(field.key());
        EXPECT_NE(refusal_of(with_header(record, changed), model), "") << field.key();
      }
      expect_refused("", "converted", false);
      expect_refused("", "more", 1);
      model.check({});
    }
  }
}

TEST(CacheKinds, OnlyACacheOfTheSameSignatureTakesARecord) {
  std::vector<LayerCase> cases = layer_cases();
  std::vector<std::unique_ptr<OneLayer>> models;
  for (const LayerCase& c : cases) models.push_back(std::make_unique<OneLayer>(c));
  for (size_t from = 0; from < cases.size(); ++from) {
    for (const CacheForm form : {kPortable, kPaged}) {
      const Record record = record_of(models[from]->row(130), form);
      for (size_t to = 0; to < cases.size(); ++to) {
        if (to == from) {
          EXPECT_EQ(restored(record, *models[to]).offset(), 130);
        } else {
          EXPECT_NE(refusal_of(record, *models[to]), "");
        }
      }
    }
  }
}

/// The tensors of a record of one cache, by name.
std::map<std::string, Bytes> tensors_of(const Record& record) {
  std::map<std::string, Bytes> found;
  const boost::json::object header = header_of(record);
  size_t data = record.size() - 64;
  for (const auto& tensor : header.at("tensors").as_array()) {
    data -= (tensor.at("bytes").to_number<size_t>() + 63) / 64 * 64;
  }
  for (const auto& tensor : header.at("tensors").as_array()) {
    found[std::string(tensor.at("name").as_string())] = Bytes(record).subspan(
        data + tensor.at("offset").to_number<size_t>(), tensor.at("bytes").to_number<size_t>());
  }
  return found;
}

struct Golden {
  explicit Golden(const std::string& name)
      : file(fmt::format("{}/turboquant/{}.safetensors", COHORT_GOLDENS, name)) {
    for (const model::TensorView& tensor : file.index.tensors) bytes[tensor.name] = tensor.bytes;
  }
  std::vector<float> floats(const std::string& name) const {
    std::vector<float> values(bytes.at(name).size() / 4);
    std::memcpy(values.data(), bytes.at(name).data(), bytes.at(name).size());
    return values;
  }
  model::SafetensorsFile file;
  std::map<std::string, Bytes> bytes;
};

constexpr int kHeads = 2;
constexpr int64_t kGoldenTokens = 5;

/// The tensors of a cache of the goldens' keys and values.
std::map<std::string, Bytes> saved(const Golden& golden, int dim,
                                   const kernels::cpu::KvEncoding& encoding, Record& record) {
  OneLayer model({LayerSpec{kHeads, dim}, {encoding, encoding, 0}});
  RowCache row = model.row();
  row.reserve(kGoldenTokens);
  const std::vector<float> k = golden.floats("k"), v = golden.floats("v");
  const kernels::cpu::KvGeometry geometry{kHeads, dim, encoding};
  for (int h = 0; h < kHeads; ++h) {
    for (int t = 0; t < kGoldenTokens; ++t) {
      const ptrdiff_t at = static_cast<ptrdiff_t>(h * kGoldenTokens + t) * dim;
      store_kv(geometry, row.attention(0).restored_block(0), h, t, k.data() + at, v.data() + at);
    }
  }
  row.commit(kGoldenTokens);
  record = record_of(row, kPortable);
  return tensors_of(record);
}

void expect_bytes(Bytes found, Bytes wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_EQ(std::memcmp(found.data(), wanted.data(), found.size()), 0);
}

TEST(CacheKinds, TurboQuantTensorsAreTheGoldens) {
  for (const int dim : {64, 128, 256, 512}) {
    const Golden golden(fmt::format("d{}", dim));
    for (const auto& [k, v] : {std::pair{8, 3}, {4, 4}, {5, 5}, {2, 2}, {8, 2}, {4, 3}}) {
      SCOPED_TRACE(fmt::format("d{} k{}v{}", dim, k, v));
      Record record;
      const auto tensors = saved(golden, dim, turbo_kv(k, v), record);
      ASSERT_EQ(tensors.size(), 5U);
      const std::string codes = k == 8 ? "k8.idx" : fmt::format("k{}.packed", k);
      expect_bytes(tensors.at("kIdx"), golden.bytes.at(codes));
      expect_bytes(tensors.at("kScales"), golden.bytes.at(fmt::format("k{}.scale", k)));
      expect_bytes(tensors.at("kZeros"), golden.bytes.at(fmt::format("k{}.zero", k)));
      expect_bytes(tensors.at("vPacked"), golden.bytes.at(fmt::format("v{}.packed", v)));
      // The sum of squares runs in another order there: a scale may differ in its last bit.
      const Bytes found = tensors.at("vScales"),
                  want = golden.bytes.at(fmt::format("v{}.scale", v));
      ASSERT_EQ(found.size(), want.size());
      for (size_t i = 0; i < found.size(); i += 2) {
        uint16_t a, b;
        std::memcpy(&a, found.data() + i, 2);
        std::memcpy(&b, want.data() + i, 2);
        ASSERT_LE(std::abs(a - b), 1);
      }
    }
  }
}

/// Ours are the nearest with the scales as they are stored, in bf16; those of MLX with the scales
/// before they are rounded. (That both agree for equal scales is a test of the kernels.)
void expect_near_codes(Bytes ours, Bytes theirs, int bits) {
  ASSERT_EQ(ours.size(), theirs.size());
  const int most = bits == 8 ? 3 : 1;
  for (size_t i = 0; i < 8 * ours.size() / static_cast<size_t>(bits); ++i) {
    const auto a = static_cast<int>(read_bits(ours.data(), i, bits));
    const auto b = static_cast<int>(read_bits(theirs.data(), i, bits));
    ASSERT_LE(std::abs(a - b), most) << "code " << i;
  }
}

TEST(CacheKinds, AffineTensorsHaveTheFormAndScalesOfMlx) {
  const Golden golden("affine_g64");
  for (const int dim : {64, 128, 256, 512}) {
    const Golden inputs(fmt::format("d{}", dim));
    for (const int bits : {4, 8}) {
      SCOPED_TRACE(fmt::format("d{} {} bits", dim, bits));
      Record record;
      const auto tensors = saved(inputs, dim, affine_kv(bits, 64), record);
      for (const auto& [which, name] :
           {std::pair{"k", std::string("key")}, {"v", std::string("value")}}) {
        const std::string prefix = fmt::format("d{}.{}.b{}.", dim, which, bits);
        expect_near_codes(tensors.at(name + "s"), golden.bytes.at(prefix + "packed"), bits);
        for (const auto& [ours, theirs] : {std::pair{"Scales", "scales"}, {"Biases", "biases"}}) {
          const std::vector<float> wanted = golden.floats(prefix + theirs);
          const Bytes found = tensors.at(name + ours);
          ASSERT_EQ(found.size(), wanted.size() * 2);
          for (size_t i = 0; i < wanted.size(); ++i) {
            uint16_t bits16;
            std::memcpy(&bits16, found.data() + 2 * i, 2);
            ASSERT_EQ(bits16, kernels::cpu::f32_to_bf16(wanted[i]));
          }
        }
      }
    }
  }
}

TEST(CacheKinds, DenseTensorsAreTheElements) {
  const Golden golden("d64");
  Record record;
  const auto tensors = saved(golden, 64, dense_kv(false), record);
  expect_bytes(tensors.at("keys"), golden.bytes.at("k"));
  expect_bytes(tensors.at("values"), golden.bytes.at("v"));
}

}  // namespace
}  // namespace cohort::kv::test
