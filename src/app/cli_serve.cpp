#include "app/commands.h"
#include "base/error.h"

namespace cohort::app {

int run_serve(const Settings& settings, const ServeOptions&) {
  fail(ErrorKind::kUnsupported, "serve {}: this build has no engine", settings.model);
}

}  // namespace cohort::app
