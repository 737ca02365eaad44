#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "app/commands.h"
#include "store/hub/model_source.h"
#include "store/hub/progress.h"

namespace cohort::app {
namespace {

const char* environment(const char* name) {
  return std::getenv(name);
}

}  // namespace

int run_ls(const Settings& settings, const LsOptions&) {
  const auto hub = store::hub_options(environment, settings.download_stall_s);
  const auto models = store::list_models(settings, hub);
  if (models.empty()) {
    fmt::print("No models yet. Fetch one with: cohort pull smollm2\n");
    return 0;
  }
  size_t width = 5;
  for (const auto& model : models) width = std::max(width, model.name.size());
  fmt::print("{:<{}}  {:>9}  PATH\n", "MODEL", width, "SIZE");
  for (const auto& model : models) {
    fmt::print("{:<{}}  {:>9}  {}{}\n", model.name, width, store::format_bytes(model.size_bytes),
               model.path.string(), model.complete ? "" : "  (incomplete)");
  }
  return 0;
}

}  // namespace cohort::app
