#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace cohort::app {

/// Hands what was printed so far to stdout's reader.
///   throws  Error{kInternal} if it did not take it: a full disk, or a reader that is gone
inline void flush_output() {
  if (std::fflush(stdout) == 0) return;
  fail(ErrorKind::kInternal, "cannot write the output: {}", std::strerror(errno));
}

}  // namespace cohort::app
