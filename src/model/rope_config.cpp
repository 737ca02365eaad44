#include "model/rope_config.h"

#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "model/decoder.h"

namespace cohort::model {
namespace {

using nn::RopeSettings;

/// What no published model leaves; beyond it frequencies overflow or are not numbers. 0 stands for
/// what is not stated.
struct Bounds {
  const char* key;
  double RopeSettings::*value;
  double least, most;
};
constexpr Bounds kBounds[] = {
    {"rope_theta", &RopeSettings::theta, 2, 1e15},
    {"factor", &RopeSettings::factor, 1, 1e6},
    {"original_max_position_embeddings", &RopeSettings::original_context, 0, 1 << 28},
    {"low_freq_factor", &RopeSettings::low_freq_factor, 1e-3, 1e6},
    {"high_freq_factor", &RopeSettings::high_freq_factor, 1e-3, 1e6},
    {"beta_fast", &RopeSettings::beta_fast, 1e-3, 1e6},
    {"beta_slow", &RopeSettings::beta_slow, 1e-3, 1e6},
    {"mscale", &RopeSettings::mscale, 0, 1e3},
    {"mscale_all_dim", &RopeSettings::mscale_all_dim, 0, 1e3},
    {"attention_factor", &RopeSettings::attention_factor, 0, 1e3},
};

/// The types, each with the keys that its formula has no default for.
///   source  transformers modeling_rope_utils.py
struct Type {
  std::string_view name;
  std::vector<const char*> required;
};
const std::vector<Type>& types() {
  static const std::vector<Type> kTypes{
      {"default", {}},
      {"linear", {"factor"}},
      {"yarn", {"factor"}},
      {"llama3",
       {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"}},
  };
  return kTypes;
}

void require_type(const RopeSettings& rope, const boost::json::object& object, const Source& source,
                  const std::string& where) {
  std::string known;
  for (const Type& type : types()) {
    known += (known.empty() ? "" : ", ") + std::string(type.name);
    if (type.name != rope.type) continue;
    for (const char* key : type.required) {
      const boost::json::value* value = object.if_contains(key);
      // In a GGUF file, what is not stated is a default.
      if (source.gguf || (value != nullptr && !value->is_null())) continue;
      fail(ErrorKind::kInvalidRequest, "{}: \"{}\" is missing: rope type {} needs it", where, key,
           type.name);
    }
    return;
  }
  fail(ErrorKind::kUnsupported, "{}: \"rope_type\" is {}; supported: {}", where,
       printable(rope.type), known);
}

void require_order(double low, double high, const char* low_key, const char* high_key,
                   const std::string& where) {
  if (low < high) return;
  fail(ErrorKind::kInvalidRequest, "{}: \"{}\" is {} and must be above \"{}\", which is {}", where,
       high_key, high, low_key, low);
}

}  // namespace

nn::Rope make_rope(const boost::json::object* object, double theta, const Source& source,
                   int64_t context_tokens, int dims, std::span<const float> factors) {
  const RopeSettings rope = read_rope(object, theta, source, context_tokens);
  const std::string where = source.checkpoint.path + ": rope settings";
  if (object != nullptr) require_type(rope, *object, source, where);
  for (const Bounds& bounds : kBounds) {
    const double value = rope.*bounds.value;
    if (value >= bounds.least && value <= bounds.most) continue;
    fail(ErrorKind::kInvalidRequest, "{}: \"{}\" is {}, must be from {} to {}", where, bounds.key,
         value, bounds.least, bounds.most);
  }
  if (rope.type == "llama3") {
    require_order(rope.low_freq_factor, rope.high_freq_factor, "low_freq_factor",
                  "high_freq_factor", where);
  }
  if (rope.type == "yarn") {
    require_order(rope.beta_slow, rope.beta_fast, "beta_slow", "beta_fast", where);
  }
  return {dims, rope, factors};
}

}  // namespace cohort::model
