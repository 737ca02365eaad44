#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::text {

/// Makes whole UTF-8 characters of bytes that arrive in any pieces. What can be no character
/// becomes U+FFFD, one for each longest beginning of a character.
///   source  Unicode 16, section 3.9, "U+FFFD substitution of maximal subparts"
class Utf8Assembler {
 public:
  /// Appends to `out` every character that is now complete.
  void push(std::string_view bytes, std::string& out);
  /// Appends U+FFFD for a character still incomplete.
  void finish(std::string& out);

 private:
  void start_character(uint8_t byte, std::string& out);

  std::string pending_;               // the beginning of one character, at most 3 bytes
  int missing_ = 0;                   // bytes until it is complete
  uint8_t low_ = 0x80, high_ = 0xBF;  // what its next byte may be
};

}  // namespace cohort::text
