#include "app/commands.h"
#include "base/error.h"

namespace cohort::app {

int run_run(const Settings& settings, const RunOptions&) {
  fail(ErrorKind::kUnsupported, "run {}: this build has no engine", settings.model);
}

}  // namespace cohort::app
