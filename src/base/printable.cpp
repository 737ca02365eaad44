#include "base/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace cohort {

std::string printable(std::string_view text) {
  constexpr size_t kMaxBytes = 96;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxBytes)) {
    if (c >= ' ' && c <= '~' && c != '\'' && c != '\\') {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out + (text.size() > kMaxBytes ? "...'" : "'");
}

}  // namespace cohort
