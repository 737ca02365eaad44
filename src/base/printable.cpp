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

std::string_view whole_characters(std::string_view text, size_t most_bytes) {
  constexpr size_t kLongest = 4;
  if (text.size() <= most_bytes) return text;
  size_t end = most_bytes;
  while (end > most_bytes - kLongest + 1 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end);
}

}  // namespace cohort
