// Packed weights against what the makers of each storage format decode.

#include <gtest/gtest.h>
#include <mlx/mlx.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "model/weights.h"
#include "tests/support/random_data.h"
#include "tests/support/tensors.h"

namespace cohort::model {
namespace {

namespace mx = mlx::core;

TEST(BlockFormats, DecodeAsGgufPyDoes) {
  const SafetensorsFile file(std::string(COHORT_GOLDENS) + "/gguf_blocks.safetensors");
  const test::Tensors golden(file.file.path());
  kernels::cpu::ThreadPool pool(1);
  kernels::cpu::WeightArena arena;
  for (const kernels::cpu::BlockFormat& format : kernels::cpu::block_formats()) {
    const std::string name(format.name);
    const auto stored = golden.read<std::byte>(name + ".stored");
    const auto want = golden.floats(name + ".values");
    constexpr int kRows = 5, kCols = 512;
    const size_t row_bytes = stored.size() / kRows;
    const auto matrix = kernels::cpu::pack_quantized(
        arena, pool, kRows, kCols, format.layout,
        [&](int64_t row, int64_t group, kernels::cpu::DecodedGroup& out) {
          format.decode(stored.data() + static_cast<size_t>(row) * row_bytes, group, out);
        });
    std::vector<float> row(kCols);
    for (int r = 0; r < kRows; ++r) {
      matrix.unpack_row(r, row.data());
      for (int k = 0; k < kCols; ++k) {
        const float value = want[static_cast<size_t>(r * kCols + k)];
        ASSERT_NEAR(row[static_cast<size_t>(k)], value, 1e-6f * (1 + std::abs(value)))
            << name << " row " << r << " column " << k;
      }
    }
  }
}

/// A folder with one MLX-quantized embedding and the config that describes it.
class AffineFolder {
 public:
  AffineFolder(const mx::array& weight, int group, int bits, bool in_config) {
    const std::vector<mx::array> q = mx::quantize(weight, group, bits);
    std::unordered_map<std::string, mx::array> tensors{{"model.embed_tokens.weight", q[0]},
                                                       {"model.embed_tokens.scales", q[1]},
                                                       {"model.embed_tokens.biases", q[2]}};
    values = mx::astype(mx::dequantize(q[0], q[1], q[2], group, bits), mx::float32);
    mx::eval(values);
    std::filesystem::create_directories(path);
    mx::save_safetensors(path + "/model.safetensors", tensors);
    std::ofstream config(path + "/config.json");
    config << R"({"model_type": "llama")";
    if (in_config) {
      config << fmt::format(R"(, "quantization": {{"group_size": {}, "bits": {}}})", group, bits);
    }
    config << "}";
  }
  ~AffineFolder() { std::filesystem::remove_all(path); }

  const std::string path = testing::TempDir() + fmt::format("/affine_folder_{}", ::getpid());
  mx::array values = mx::array(0.0f);
};

TEST(AffineWeights, DecodeAsMlxDoesForEveryWidthGroupAndScaleType) {
  kernels::cpu::Cpu cpu(2);
  constexpr int kRows = 19, kCols = 256;
  const auto data = test::random_floats(kRows * kCols, 17);
  const mx::array weight(data.begin(), {kRows, kCols}, mx::float32);
  for (mx::Dtype type : {mx::float32, mx::float16, mx::bfloat16}) {
    for (int bits : {2, 3, 4, 5, 6, 8}) {
      for (int group : {32, 64, 128}) {
        for (bool in_config : {true, false}) {
          const AffineFolder folder(mx::astype(weight, type), group, bits, in_config);
          const Checkpoint checkpoint = Checkpoint::open(folder.path);
          const Source source(checkpoint);
          Weights weights(source, cpu);
          const auto* matrix = weights.matrix("model.embed_tokens", kRows, kCols);
          const WeightStore store = weights.finish();
          std::vector<float> row(kCols);
          for (int r = 0; r < kRows; ++r) {
            matrix->unpack_row(r, row.data());
            const float* want = folder.values.data<float>() + r * kCols;
            // MLX rounds scale * code + bias to the type of the scales.
            const float tolerance = type == mx::float32   ? 1e-6f
                                    : type == mx::float16 ? 2e-3f
                                                          : 2e-2f;
            for (int k = 0; k < kCols; ++k) {
              ASSERT_NEAR(row[static_cast<size_t>(k)], want[k], tolerance)
                  << bits << " bits, group " << group << ", row " << r;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cohort::model
