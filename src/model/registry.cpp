#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "model/model.h"
#include "model/source.h"

namespace cohort::model {

using FamilyFactory = std::unique_ptr<Model>(const Source&, const LoadOptions&, kernels::cpu::Cpu&);

namespace families {
#define MODEL_FAMILY(factory, ...) FamilyFactory factory;
#include "model/families.def"
#undef MODEL_FAMILY
}  // namespace families

namespace {

struct Family {
  FamilyFactory* make;
  std::vector<std::string_view> names;
};

const std::vector<Family>& all_families() {
  static const std::vector<Family> kFamilies{
#define MODEL_FAMILY(factory, ...) Family{families::factory, {__VA_ARGS__}},
#include "model/families.def"
#undef MODEL_FAMILY
  };
  return kFamilies;
}

}  // namespace

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options,
                                  kernels::cpu::Cpu& cpu) {
  const Source source(checkpoint);
  std::string known;
  for (const Family& family : all_families()) {
    for (std::string_view name : family.names) {
      if (name == source.family) return family.make(source, options, cpu);
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
  }
  fail(ErrorKind::kUnsupported, "{}: model type {} is not supported; supported: {}",
       checkpoint.path, printable(source.family), known);
}

}  // namespace cohort::model
