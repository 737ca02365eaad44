#pragma once

#include <string>
#include <string_view>

namespace cohort {

/// Makes text from a file or a client fit for an error or a log line: quoted, bytes outside
/// printable ASCII as \xNN, cut (with "...") after 96 bytes.
std::string printable(std::string_view text);

/// At most `most_bytes` from the beginning of UTF-8 text, cut between characters; what is longer
/// than three bytes never becomes nothing.
///   most_bytes  4 or more
std::string_view whole_characters(std::string_view text, size_t most_bytes);

}  // namespace cohort
