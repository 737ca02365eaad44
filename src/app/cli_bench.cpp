#include "app/commands.h"
#include "base/error.h"

namespace cohort::app {

int run_bench(const Settings& settings, const BenchOptions&) {
  fail(ErrorKind::kUnsupported, "bench {}: this build has no engine", settings.model);
}

}  // namespace cohort::app
