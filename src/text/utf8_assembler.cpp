#include "text/utf8_assembler.h"

namespace cohort::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (missing_ > 0) {
      if (byte >= low_ && byte <= high_) {
        pending_ += c;
        low_ = 0x80, high_ = 0xBF;
        if (--missing_ == 0) {
          out += pending_;
          pending_.clear();
        }
        continue;
      }
      finish(out);
    }
    start_character(byte, out);
  }
}

void Utf8Assembler::start_character(uint8_t byte, std::string& out) {
  if (byte < 0x80) {
    out += static_cast<char>(byte);
    return;
  }
  if (byte >= 0xC2 && byte <= 0xDF) {
    missing_ = 1;
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    missing_ = 2;
    if (byte == 0xE0) low_ = 0xA0;   // no overlong forms
    if (byte == 0xED) high_ = 0x9F;  // no surrogates
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    missing_ = 3;
    if (byte == 0xF0) low_ = 0x90;
    if (byte == 0xF4) high_ = 0x8F;  // nothing beyond U+10FFFF
  } else {
    out += kReplacement;
    return;
  }
  pending_ = static_cast<char>(byte);
}

void Utf8Assembler::finish(std::string& out) {
  if (missing_ > 0) out += kReplacement;
  pending_.clear();
  missing_ = 0;
  low_ = 0x80, high_ = 0xBF;
}

}  // namespace cohort::text
