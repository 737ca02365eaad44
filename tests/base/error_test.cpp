#include "base/error.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Error, AZeroByteDoesNotCutTheMessage) {
  const std::string text("a\0b\0", 4);
  EXPECT_STREQ(Error(ErrorKind::kInvalidRequest, text).what(), "a\\x00b\\x00");
  EXPECT_STREQ(Error(ErrorKind::kInvalidRequest, "plain").what(), "plain");
}

}  // namespace
}  // namespace cohort
