#include "model/quantization.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "model/checkpoint.h"
#include "tests/support/refusal.h"

namespace cohort::model {
namespace {

QuantizationConfig config_of(std::string_view json) {
  return QuantizationConfig::parse(parse_json_object(json, "config.json"), "config.json");
}

TensorView view(const char* name, TensorType type, std::vector<int64_t> shape) {
  return {.name = name, .type = type, .shape = std::move(shape), .bytes = {}};
}

// Packs 128 inputs: 4 bits in groups of 64, or 8 bits in groups of 32 for 64 inputs.
const TensorView kWeight = view("m.weight", TensorType::kU32, {10, 16});
const TensorView kScales = view("m.scales", TensorType::kBF16, {10, 2});

Quantization ask(std::string_view json, int64_t in_features = 0, std::string_view module = "m") {
  return quantization_of(config_of(json), module, kWeight, kScales, &kScales, in_features);
}

using test::refusal;

TEST(Quantization, TheConfigDecidesWhenTheInputsAreUnknown) {
  EXPECT_EQ(ask("{}"), (Quantization{64, 4}));
  EXPECT_EQ(ask(R"({"quantization": {"group_size": 64, "bits": 4}})"), (Quantization{64, 4}));
  EXPECT_EQ(ask(R"({"quantization": {"group_size": 32, "bits": 8}})"), (Quantization{32, 8}));
  EXPECT_EQ(ask(R"({"quantization_config": {"group_size": 128, "bits": 2}})"),
            (Quantization{128, 2}));
}

TEST(Quantization, BitsFollowTheShapesWhenNoExceptionMatches) {
  EXPECT_EQ(ask(R"({"quantization": {"group_size": 32, "bits": 4}})"), (Quantization{32, 8}));
}

TEST(Quantization, KnownInputsDecideWithTheShapes) {
  EXPECT_EQ(ask("{}", 128), (Quantization{64, 4}));
  EXPECT_EQ(ask("{}", 64), (Quantization{32, 8}));
  EXPECT_EQ(ask("{}", 256), (Quantization{128, 2}));
  EXPECT_NE(refusal([] { ask("{}", 96); }).find("fit no group size"), std::string::npos);
}

TEST(Quantization, ExceptionsMatchWithAndWithoutTheWrapper) {
  const char* plain = R"({"quantization": {"group_size": 64, "bits": 4,
                          "model.m": {"group_size": 32, "bits": 8}}})";
  const char* wrapped = R"({"quantization": {"group_size": 64, "bits": 4,
                            "language_model.model.m": {"group_size": 32, "bits": 8}}})";
  const char* newer = R"({"quantization": {"group_size": 64, "bits": 4,
                          "model.language_model.m": {"group_size": 32, "bits": 8}}})";
  for (const char* json : {plain, wrapped, newer}) {
    EXPECT_EQ(ask(json, 0, "model.m"), (Quantization{32, 8}));
    EXPECT_EQ(ask(json, 0, "language_model.model.m"), (Quantization{32, 8}));
    EXPECT_EQ(ask(json, 0, "model.language_model.m"), (Quantization{32, 8}));
    EXPECT_EQ(ask(json, 0, "model.n"), (Quantization{64, 4}));
  }
}

TEST(Quantization, AnExceptionThatContradictsTheShapesIsRefused) {
  const char* json = R"({"quantization": {"group_size": 64, "bits": 4,
                         "m": {"group_size": 64, "bits": 8}}})";
  EXPECT_EQ(
      refusal([&] { ask(json); }),
      "tensor 'm.weight': the config says 8 bits in groups of 64, the shapes 4 bits in groups "
      "of 64");
  const char* dense = R"({"quantization": {"group_size": 64, "bits": 4, "m": false}})";
  EXPECT_NE(refusal([&] { ask(dense); }).find("is not quantized"), std::string::npos);
  EXPECT_TRUE(config_of(dense).exception("m")->dense);
}

TEST(Quantization, OtherModesAreNamed) {
  const auto mode = [](const char* json) {
    return refusal([&] { ask(json); }, ErrorKind::kUnsupported);
  };
  EXPECT_EQ(mode(R"({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}})"),
            "tensor 'm.weight': the quantization mode 'mxfp4' is not supported; supported: affine");
  EXPECT_EQ(mode(R"({"quantization": {"group_size": 64, "bits": 4,
                     "m": {"group_size": 16, "bits": 4, "mode": "nvfp4"}}})"),
            "tensor 'm.weight': the quantization mode 'nvfp4' is not supported; supported: affine");
}

TEST(Quantization, ShapesThatDisagreeAreRefused) {
  const QuantizationConfig config;
  const auto reason = [&](const TensorView& weight, const TensorView& scales,
                          const TensorView* biases) {
    return refusal([&] { quantization_of(config, "m", weight, scales, biases); });
  };
  const auto rows = view("m.scales", TensorType::kBF16, {11, 2});
  const auto flat = view("m.scales", TensorType::kBF16, {2});
  const auto bytes = view("m.scales", TensorType::kU8, {10, 2});
  const auto none = view("m.scales", TensorType::kBF16, {10, 0});
  const auto dense = view("m.weight", TensorType::kF32, {10, 16});
  const auto wide = view("m.scales", TensorType::kF32, {10, 2});
  EXPECT_EQ(reason(kWeight, rows, &rows),
            "tensor 'm.weight': U32 [10, 16] with scales BF16 [11, 2]: both need two or more "
            "dimensions that agree except for the last");
  EXPECT_NE(reason(kWeight, flat, &flat), "");
  EXPECT_NE(reason(kWeight, bytes, &bytes).find("must be F32, F16 or BF16"), std::string::npos);
  EXPECT_NE(reason(kWeight, none, &none).find("a row is empty"), std::string::npos);
  EXPECT_NE(reason(dense, kScales, &kScales).find("must be U32"), std::string::npos);
  EXPECT_NE(reason(kWeight, kScales, nullptr).find("biases are missing"), std::string::npos);
  EXPECT_NE(reason(kWeight, kScales, &wide).find("biases are F32 [10, 2]"), std::string::npos);
}

TEST(Quantization, GoldenCheckpointsAgree) {
  const std::pair<const char*, Quantization> cases[] = {
      {"llama_q4_g32", {32, 4}}, {"llama_q4_g64", {64, 4}}, {"llama_q8_g64", {64, 8}}};
  for (const auto& [name, expected] : cases) {
    const Checkpoint checkpoint =
        Checkpoint::open(COHORT_GOLDENS "/quantized/" + std::string(name));
    const auto config = QuantizationConfig::parse(checkpoint.config, "config.json");
    int modules = 0;
    for (const TensorView& scales : checkpoint.tensors) {
      if (!scales.name.ends_with(".scales")) continue;
      const std::string module = scales.name.substr(0, scales.name.size() - 7);
      const TensorView* weight = checkpoint.find(module + ".weight");
      ASSERT_NE(weight, nullptr);
      EXPECT_EQ(
          quantization_of(config, module, *weight, scales, checkpoint.find(module + ".biases")),
          expected)
          << name << " " << module;
      ++modules;
    }
    EXPECT_EQ(modules, 30) << name;
  }
}

}  // namespace
}  // namespace cohort::model
