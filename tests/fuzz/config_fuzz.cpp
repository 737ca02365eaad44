#include <cstddef>
#include <cstdint>

#include "base/json.h"
#include "model/quantization.h"

namespace {

using namespace cohort;

// Any settings meet shapes of a real module: explained, or refused with an Error.
void ask(const model::QuantizationConfig& config, int64_t words, int64_t groups, int64_t inputs) {
  const model::TensorView weight{"lm_head.weight", model::TensorType::kU32, {327, words}, {}};
  const model::TensorView scales{"lm_head.scales", model::TensorType::kBF16, {327, groups}, {}};
  try {
    model::quantization_of(config, "lm_head", weight, scales, &scales, inputs);
  } catch (const Error&) {
  }
}

}  // namespace

/// Any text is either refused with an Error or a quantization setting that answers or refuses.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto config =
        model::QuantizationConfig::parse(parse_json_object(text, "fuzz"), "config.json");
    ask(config, 16, 2, 0);
    ask(config, 16, 2, 64);
    ask(config, INT64_MAX, INT64_MAX, INT64_MAX);
    ask(config, 0, 0, 1);
  } catch (const Error&) {
  }
  try {
    parse_json(text, "fuzz", {.max_depth = 8, .unique_keys = true});
  } catch (const Error&) {
  }
  return 0;
}
