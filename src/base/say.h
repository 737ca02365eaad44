#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace cohort {

/// Writes a message for the person at the terminal to stderr. A terminal that is gone or a full
/// disk is no failure of the work that the message is about.
///   thread  any; one call is one write
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace cohort
