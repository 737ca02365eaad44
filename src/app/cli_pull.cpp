#include <fmt/format.h>

#include <cstdlib>

#include "app/commands.h"
#include "store/hub/model_source.h"

namespace cohort::app {
namespace {

const char* environment(const char* name) {
  return std::getenv(name);
}

}  // namespace

int run_pull(const Settings& settings, const PullOptions& options) {
  const auto hub = store::hub_options(environment, settings.download_stall_s);
  const auto model = store::resolve_model(settings.model, settings, hub, options.update);
  fmt::print("{}\n", model.path.string());
  return 0;
}

}  // namespace cohort::app
