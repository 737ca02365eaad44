#include "app/commands.h"
#include "base/error.h"

namespace cohort::app {

int run_logits(const Settings& settings, const LogitsOptions&) {
  fail(ErrorKind::kUnsupported, "logits {}: this build has no engine", settings.model);
}

}  // namespace cohort::app
