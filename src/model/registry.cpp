#include <fmt/ranges.h>

#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "model/decoder.h"
#include "model/source.h"

namespace cohort::model {

/// Reads a config; touches no weights.
using Describe = DecoderSpec(const Source&);

namespace families {
#define MODEL_FAMILY(describe, ...) Describe describe;
#include "model/families.def"
#undef MODEL_FAMILY
}  // namespace families

namespace {

struct Family {
  Describe* describe;
  std::vector<std::string_view> names;
};

const std::vector<Family>& all_families() {
  static const std::vector<Family> kFamilies{
#define MODEL_FAMILY(describe, ...) Family{families::describe, {__VA_ARGS__}},
#include "model/families.def"
#undef MODEL_FAMILY
  };
  return kFamilies;
}

DecoderSpec describe(const Source& source) {
  std::string known;
  for (const Family& family : all_families()) {
    for (std::string_view name : family.names) {
      if (name == source.family) return family.describe(source);
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
  }
  fail(ErrorKind::kUnsupported, "{}: model type {} is not supported; supported: {}",
       source.checkpoint.path, printable(source.family), known);
}

}  // namespace

ModelShape read_shape(const Checkpoint& checkpoint) {
  return describe(Source(checkpoint)).shape;
}

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options,
                                  kernels::cpu::Cpu& cpu) {
  const Source source(checkpoint);
  auto model = std::make_unique<Decoder>(describe(source), source, options, cpu);
  if (!source.image_parts.empty()) {
    options.log(fmt::format("{}: its parts for images are left out: {}*", checkpoint.path,
                            fmt::join(source.image_parts, "*, ")));
  }
  return model;
}

}  // namespace cohort::model
