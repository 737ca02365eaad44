#include <string>

#include "app/commands.h"
#ifdef COHORT_WITH_MLX
#include <mlx/version.h>
#endif

namespace cohort::app {

std::string version_line() {
  const std::string line = "cohort " COHORT_VERSION;
#ifdef COHORT_WITH_MLX
  return line + " (MLX " + mlx::core::version() + ")";
#else
  return line + " (without MLX)";
#endif
}

}  // namespace cohort::app
