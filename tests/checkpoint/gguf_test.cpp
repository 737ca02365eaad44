#include "model/gguf.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

namespace cohort::model {
namespace {

// Written by tools/make_hostile_files.py; the values here are those of that script.
const std::string kFolder = COHORT_CORPUS "/gguf/";

template <class T>
std::string refusal(const GgufMetadata& metadata, const char* key) {
  return test::refusal([&] { metadata.get<T>(key); });
}

TEST(Gguf, MetadataKeepsEveryType) {
  const GgufFile file(kFolder + "ok_every_value.gguf");
  const GgufMetadata& m = file.index.metadata;
  EXPECT_EQ(file.index.version, 3U);
  EXPECT_EQ(m.values().size(), 19U);
  EXPECT_EQ(m.get<uint32_t>("s.u8"), 255U);
  EXPECT_EQ(m.get<int64_t>("s.i8"), -1);
  EXPECT_EQ(m.get<uint32_t>("s.u16"), 65535U);
  EXPECT_EQ(m.get<int64_t>("s.i16"), -2);
  EXPECT_EQ(m.get<uint32_t>("s.u32"), 0xffffffffU);
  EXPECT_EQ(m.get<int64_t>("s.i32"), -3);
  EXPECT_EQ(m.get<int64_t>("s.i64"), -4);
  EXPECT_EQ(m.get<float>("s.f32"), 0.5F);
  EXPECT_EQ(m.get<float>("s.f64"), 0.25F);
  EXPECT_TRUE(m.get<bool>("s.true"));
  EXPECT_FALSE(m.get<bool>("s.false"));
  EXPECT_EQ(m.get<std::string_view>("s.string"), "two\nlines \u2581");
  EXPECT_EQ(m.get<std::vector<int32_t>>("a.i32"), (std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(m.get<std::vector<int64_t>>("a.u8"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(m.get<std::vector<float>>("a.f32"), std::vector<float>{0.5F});
  EXPECT_EQ(m.get<std::vector<bool>>("a.bool"), (std::vector<bool>{true, false}));
  EXPECT_EQ(m.get<std::vector<std::string_view>>("a.string"),
            (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_TRUE(m.get<std::vector<int32_t>>("a.none").empty());
}

TEST(Gguf, AWrongTypeNamesKeyWantedAndFound) {
  const GgufFile file(kFolder + "ok_every_value.gguf");
  const GgufMetadata& m = file.index.metadata;
  const std::string head = "ok_every_value.gguf: the metadata key ";
  EXPECT_EQ(refusal<uint32_t>(m, "s.i8"), head + "'s.i8' must be uint32, but is int8 -1");
  EXPECT_EQ(refusal<int64_t>(m, "s.u64"),
            head + "'s.u64' must be int64, but is uint64 18446744073709551615");
  EXPECT_EQ(refusal<bool>(m, "s.u8"), head + "'s.u8' must be bool, but is uint8 255");
  EXPECT_EQ(refusal<uint32_t>(m, "s.true"), head + "'s.true' must be uint32, but is bool");
  EXPECT_EQ(refusal<float>(m, "s.i32"), head + "'s.i32' must be float32, but is int32 -3");
  EXPECT_EQ(refusal<std::string_view>(m, "a.string"),
            head + "'a.string' must be string, but is array of string");
  EXPECT_EQ(refusal<std::vector<int32_t>>(m, "a.f32"),
            head + "'a.f32' must be array of int32, but is array of float32");
  EXPECT_EQ(refusal<float>(m, "absent"), head + "'absent' is missing (float32 wanted)");
  EXPECT_EQ(m.find<uint32_t>("absent"), std::nullopt);
  EXPECT_EQ(m.value("absent"), nullptr);
  EXPECT_THROW(m.find<uint32_t>("s.string"), Error);
}

TEST(Gguf, ShapesAreOutermostFirstAndOffsetsFollowTheAlignment) {
  const GgufFile file(kFolder + "ok_alignment_64.gguf");
  ASSERT_EQ(file.index.tensors.size(), 2U);
  const TensorView& a = file.index.tensors[0];
  const TensorView& b = file.index.tensors[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(b.shape, (std::vector<int64_t>{3, 2}));  // ne = [2, 3]
  EXPECT_EQ(b.type, TensorType::kF16);
  EXPECT_EQ(b.bytes.size(), 12U);
  EXPECT_EQ(a.bytes.data() - b.bytes.data(), 64);
  EXPECT_EQ((b.bytes.data() - file.file.bytes().data()) % 64, 0);
}

TEST(Gguf, BlockTypesHaveTheirSizes) {
  const GgufFile file(kFolder + "ok_every_type.gguf");
  EXPECT_EQ(file.index.tensors.size(), 16U);
  for (const TensorView& tensor : file.index.tensors) {
    const TensorTypeInfo& t = info(tensor.type);
    EXPECT_EQ(tensor.name, "t." + std::string(t.name));
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, t.block_elements}));
    EXPECT_EQ(tensor.bytes.size(), 2U * t.block_bytes);
  }
}

}  // namespace
}  // namespace cohort::model
