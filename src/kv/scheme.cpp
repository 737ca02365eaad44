#include "kv/scheme.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"

namespace cohort::kv {

using kernels::cpu::affine_kv;
using kernels::cpu::dense_kv;
using kernels::cpu::KvEncoding;
using kernels::cpu::turbo_kv;

constexpr int64_t kMostLayers = 4096;

std::string KvScheme::name() const {
  std::string text = dense_bf16 ? "bf16" : "f32";
  const std::string beside = dense_bf16 ? "" : "-f32";
  switch (kind) {
    case Kind::kOff:
      return text;
    case Kind::kUniform:
      text = fmt::format("kv{}-g{}{}", bits, group, beside);
      break;
    case Kind::kConfig:
      text = "config" + beside;
      for (const LayerBits& layer : layers) {
        text += fmt::format("-{}:{}g{}", layer.layer, layer.bits, layer.group);
      }
      break;
    case Kind::kTurbo:
      text = fmt::format("turbo-k{}v{}{}", key_bits, value_bits, beside);
      if (turbo_skip_ends > 0) text += fmt::format("-skip{}", turbo_skip_ends);
      break;
  }
  return start > 0 ? fmt::format("{}-start{}", text, start) : text;
}

void set_quantization(KvScheme& scheme, std::string_view words) {
  const auto refuse = [&] {
    throw Error(ErrorKind::kInvalidRequest,
                fmt::format("{} is no KV quantization (--kv-quant, kv_quant); there are off, 4, 8, "
                            "config, turbo and "
                            "turbo:kXvY with X of 2, 4, 5, 8 and Y of 2, 3, 4, 5, 8",
                            printable(words)),
                "kv_quant");
  };
  using Kind = KvScheme::Kind;
  if (words == "off") {
    scheme.kind = Kind::kOff;
  } else if (words == "4" || words == "8") {
    scheme.kind = Kind::kUniform;
    scheme.bits = words == "4" ? 4 : 8;
  } else if (words == "config") {
    scheme.kind = Kind::kConfig;
  } else if (words == "turbo") {
    scheme.kind = Kind::kTurbo;
    scheme.key_bits = 8;
    scheme.value_bits = 3;
  } else {
    const bool shaped = words.size() == 10 && words.starts_with("turbo:k") && words[8] == 'v';
    const char k = shaped ? words[7] : 0, v = shaped ? words[9] : 0;
    if (!shaped || std::string_view("2458").find(k) == std::string_view::npos ||
        std::string_view("23458").find(v) == std::string_view::npos) {
      refuse();
    }
    scheme.kind = Kind::kTurbo;
    scheme.key_bits = k - '0';
    scheme.value_bits = v - '0';
  }
}

std::vector<LayerBits> read_kv_config(std::string_view text, const std::string& file) {
  const boost::json::value list = parse_json(text, file, {.unique_keys = true});
  if (!list.is_array()) {
    fail(ErrorKind::kInvalidRequest,
         "{}: must be an array of {{\"layer_idx\", \"bits\", \"group_size\"}}", file);
  }
  if (list.get_array().size() > kMostLayers) {
    fail(ErrorKind::kInvalidRequest, "{}: has {} entries, at most {} are read", file,
         list.get_array().size(), kMostLayers);
  }
  std::vector<LayerBits> layers;
  for (const boost::json::value& entry : list.get_array()) {
    const auto number = [&](const char* key) {
      const boost::json::value* value =
          entry.is_object() ? entry.get_object().if_contains(key) : nullptr;
      if (value == nullptr || !value->is_int64() || value->get_int64() < 0 ||
          value->get_int64() >= kMostLayers) {
        fail(ErrorKind::kInvalidRequest,
             "{}: entry {} must have a whole number \"{}\" from 0 to {}", file, layers.size(), key,
             kMostLayers - 1);
      }
      return static_cast<int>(value->get_int64());
    };
    const LayerBits layer{number("layer_idx"), number("bits"), number("group_size")};
    if (entry.get_object().size() != 3) {
      fail(ErrorKind::kInvalidRequest,
           "{}: entry {} has keys beside \"layer_idx\", \"bits\" and \"group_size\"", file,
           layers.size());
    }
    if (std::ranges::count(layers, layer.layer, &LayerBits::layer) > 0) {
      fail(ErrorKind::kInvalidRequest, "{}: layer {} is named twice", file, layer.layer);
    }
    layers.push_back(layer);
  }
  return layers;
}

namespace {

/// The encoding that the scheme wants for a layer, if not dense.
std::optional<KvEncoding> wanted(const KvScheme& scheme, const LayerSpec& spec, size_t layer,
                                 size_t layers) {
  switch (scheme.kind) {
    case KvScheme::Kind::kOff:
      return {};
    case KvScheme::Kind::kUniform:
      return affine_kv(scheme.bits, scheme.group);
    case KvScheme::Kind::kConfig: {
      const auto entry =
          std::ranges::find(scheme.layers, static_cast<int>(layer), &LayerBits::layer);
      if (entry == scheme.layers.end()) return {};
      return affine_kv(entry->bits, entry->group);
    }
    case KvScheme::Kind::kTurbo: {
      const auto skip = static_cast<size_t>(scheme.turbo_skip_ends);
      if (spec.window > 0 || layer < skip || layer + skip >= layers) return {};
      return turbo_kv(scheme.key_bits, scheme.value_bits);
    }
  }
  return {};
}

}  // namespace

std::string refusal(const KvScheme& scheme, const std::vector<AnyLayerSpec>& layers) {
  if (scheme.kind == KvScheme::Kind::kConfig) {
    if (scheme.layers.empty()) return "there is no kv_config.json that names a layer";
    for (const LayerBits& entry : scheme.layers) {
      if (static_cast<size_t>(entry.layer) < layers.size()) continue;
      return fmt::format("layer {}: the model has {} layers", entry.layer, layers.size());
    }
  }
  bool changes_any = scheme.kind == KvScheme::Kind::kOff;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto* spec = std::get_if<LayerSpec>(&layers[i]);
    const auto encoding = spec ? wanted(scheme, *spec, i, layers.size()) : std::nullopt;
    if (!encoding) continue;
    const std::string reason = kernels::cpu::refusal(*encoding, spec->head_dim);
    if (!reason.empty()) return fmt::format("layer {}: {}", i, reason);
    changes_any = true;
  }
  return changes_any ? "" : "it leaves every layer of this model as it is";
}

RowPrecision resolve(const KvScheme& scheme, const std::vector<AnyLayerSpec>& layers) {
  const std::string reason = refusal(scheme, layers);
  if (!reason.empty()) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("KV quantization {} cannot be had: {}", scheme.name(), reason),
                "kv_quant");
  }
  const KvEncoding dense = dense_kv(scheme.dense_bf16);
  RowPrecision precision(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto* spec = std::get_if<LayerSpec>(&layers[i]);
    if (spec == nullptr) continue;
    precision[i] = {dense, wanted(scheme, *spec, i, layers.size()).value_or(dense), scheme.start};
  }
  return precision;
}

}  // namespace cohort::kv
