// main() of the runners that use chat templates: also that of the template's process.

#include <gtest/gtest.h>

#include "text/template_worker.h"

int main(int argc, char** argv) {
  if (const auto status = cohort::text::serve_as_template_worker(argc, argv)) return *status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
