#include "model/quantization.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace cohort::model {
namespace {

namespace bj = boost::json;
constexpr auto kBad = ErrorKind::kInvalidRequest;

constexpr std::array kGroupSizes = {32, 64, 128};
constexpr std::array kBits = {2, 3, 4, 5, 6, 8};
constexpr int64_t kWordBits = 32;  // weights are packed into U32 words

template <class List>
bool contains(const List& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Both forms of a wrapper's names, language_model.model.X and model.language_model.X, become
// model.X.
std::string without_wrapper(std::string_view module) {
  constexpr std::string_view kModel = "model.", kWrapper = "language_model.";
  std::string name(module);
  const size_t at = name.starts_with(kModel) ? kModel.size() : 0;
  if (module.substr(at).starts_with(kWrapper)) name.erase(at, kWrapper.size());
  return name;
}

// The integer under `key`, or `absent` if it is missing or null.
int64_t int_field(const bj::object& object, const char* key, int64_t absent,
                  std::string_view where) {
  const bj::value* value = object.if_contains(key);
  if (!value || value->is_null()) return absent;
  if (!value->is_int64()) {
    fail(kBad, "{}.{} is {}, not an integer", where, key, printable(bj::serialize(*value)));
  }
  return value->get_int64();
}

QuantizationConfig::Setting read_setting(const bj::object& object, std::string_view where) {
  QuantizationConfig::Setting setting;
  if (const bj::value* mode = object.if_contains("mode"); mode && !mode->is_null()) {
    if (!mode->is_string()) fail(kBad, "{}.mode is not a string", where);
    setting.mode = mode->get_string();
  }
  const int64_t group_size = int_field(object, "group_size", setting.affine.group_size, where);
  const int64_t bits = int_field(object, "bits", setting.affine.bits, where);
  if (setting.mode != "affine") return setting;  // refused when a module needs it
  if (!contains(kGroupSizes, group_size)) {
    fail(kBad, "{}.group_size is {}; supported: {}", where, group_size,
         fmt::join(kGroupSizes, ", "));
  }
  if (!contains(kBits, bits)) {
    fail(kBad, "{}.bits is {}; supported: {}", where, bits, fmt::join(kBits, ", "));
  }
  setting.affine = {.group_size = static_cast<int>(group_size), .bits = static_cast<int>(bits)};
  return setting;
}

// The tensors of one module, checked as far as that needs no setting.
struct Packed {
  const TensorView& weight;
  const TensorView& scales;
  int64_t words;   // U32 words in a row of the weight
  int64_t groups;  // scales in a row
};

Packed check_tensors(const TensorView& weight, const TensorView& scales, const TensorView* biases) {
  const auto refuse = [&](std::string_view reason) {
    fail(kBad, "tensor {}: {} {} with scales {} {}: {}", printable(weight.name),
         info(weight.type).name, shape_text(weight.shape), info(scales.type).name,
         shape_text(scales.shape), reason);
  };
  if (weight.type != TensorType::kU32) refuse("a quantized weight must be U32");
  if (scales.type != TensorType::kF32 && scales.type != TensorType::kF16 &&
      scales.type != TensorType::kBF16) {
    refuse("scales must be F32, F16 or BF16");
  }
  const size_t rank = weight.shape.size();
  if (rank < 2 || scales.shape.size() != rank ||
      !std::equal(weight.shape.begin(), weight.shape.end() - 1, scales.shape.begin())) {
    refuse("both need two or more dimensions that agree except for the last");
  }
  const Packed packed{weight, scales, weight.shape.back(), scales.shape.back()};
  if (packed.words < 1 || packed.groups < 1) refuse("a row is empty");
  if (packed.words > INT64_MAX / kWordBits || packed.groups > INT64_MAX / kGroupSizes.back()) {
    refuse("a row is too long");
  }
  if (!biases) refuse("the biases are missing");
  if (biases->type != scales.type || biases->shape != scales.shape) {
    refuse(fmt::format("the biases are {} {}, not like the scales", info(biases->type).name,
                       shape_text(biases->shape)));
  }
  return packed;
}

// The one pair of group size and bits that explains the shapes for this many inputs.
std::optional<Quantization> explain(const Packed& packed, int64_t in_features) {
  if (in_features < 1 || in_features % packed.groups != 0) return std::nullopt;
  if (packed.words * kWordBits % in_features != 0) return std::nullopt;
  const int64_t group_size = in_features / packed.groups;
  const int64_t bits = packed.words * kWordBits / in_features;
  if (!contains(kGroupSizes, group_size) || !contains(kBits, bits)) return std::nullopt;
  return Quantization{.group_size = static_cast<int>(group_size), .bits = static_cast<int>(bits)};
}

}  // namespace

QuantizationConfig QuantizationConfig::parse(const bj::object& config, std::string_view file) {
  QuantizationConfig result;
  const char* key = "quantization";
  const bj::value* value = config.if_contains(key);
  if (!value || value->is_null()) value = config.if_contains(key = "quantization_config");
  if (!value || value->is_null()) return result;
  const std::string where = fmt::format("{}: {}", file, key);
  const bj::object* object = value->if_object();
  if (!object) fail(kBad, "{} is not an object", where);
  if (const bj::value* method = object->if_contains("quant_method")) {
    fail(ErrorKind::kUnsupported,
         "{}: the quantization method {} is not supported; supported: MLX affine, GGUF", where,
         printable(method->is_string() ? std::string_view(method->get_string()) : "?"));
  }
  result.global_ = read_setting(*object, where);
  for (const bj::key_value_pair& entry : *object) {
    const std::string_view module = entry.key();
    Setting setting = *result.global_;
    if (entry.value().is_object()) {
      setting =
          read_setting(entry.value().get_object(), fmt::format("{}.{}", where, printable(module)));
    } else if (entry.value().is_bool()) {
      setting.dense = !entry.value().get_bool();
    } else {
      continue;  // group_size, bits, mode and notes of converters
    }
    result.exceptions_.insert_or_assign(without_wrapper(module), std::move(setting));
  }
  return result;
}

const QuantizationConfig::Setting* QuantizationConfig::exception(std::string_view module) const {
  const auto place = exceptions_.find(without_wrapper(module));
  return place == exceptions_.end() ? nullptr : &place->second;
}

QuantizationConfig::Setting QuantizationConfig::setting(std::string_view module) const {
  if (const Setting* own = exception(module)) return *own;
  return global_.value_or(Setting{});
}

void QuantizationConfig::require_affine(std::string_view module) const {
  const Setting setting = this->setting(module);
  if (setting.dense || setting.mode == "affine") return;
  fail(ErrorKind::kUnsupported,
       "tensor {}: the quantization mode {} is not supported; supported: affine",
       printable(fmt::format("{}.weight", module)), printable(setting.mode));
}

Quantization quantization_of(const QuantizationConfig& config, std::string_view module,
                             const TensorView& weight, const TensorView& scales,
                             const TensorView* biases, int64_t in_features) {
  const QuantizationConfig::Setting setting = config.setting(module);
  if (setting.dense) {
    fail(kBad, "tensor {}: the config says this module is not quantized, but it has scales",
         printable(weight.name));
  }
  config.require_affine(module);
  const Packed packed = check_tensors(weight, scales, biases);
  const bool inputs_known = in_features > 0;
  if (!inputs_known) in_features = packed.groups * setting.affine.group_size;
  const std::optional<Quantization> found = explain(packed, in_features);
  if (!found) {
    fail(kBad,
         "tensor {}: weight {} and scales {} fit no group size ({}) and bits ({}) for {} inputs",
         printable(weight.name), shape_text(weight.shape), shape_text(scales.shape),
         fmt::join(kGroupSizes, ", "), fmt::join(kBits, ", "), in_features);
  }
  if (config.exception(module) && *found != setting.affine) {
    fail(kBad,
         "tensor {}: the config says {} bits in groups of {}, the shapes {} bits in groups of {}",
         printable(weight.name), setting.affine.bits, setting.affine.group_size, found->bits,
         found->group_size);
  }
  return *found;
}

}  // namespace cohort::model
