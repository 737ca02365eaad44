#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace cohort::test {

/// The message of the Error that a call throws, which must be of this kind; "" if it throws none.
template <class Call>
std::string refusal(Call call, ErrorKind kind = ErrorKind::kInvalidRequest) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace cohort::test
