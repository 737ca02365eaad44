#pragma once

#include <string>
#include <string_view>

namespace cohort {

/// Makes text from a file or a client fit for an error or a log line: quoted, bytes outside
/// printable ASCII as \xNN, cut (with "...") after 96 bytes.
std::string printable(std::string_view text);

}  // namespace cohort
