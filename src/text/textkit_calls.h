#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/utf8_assembler.h"
#include "textkit.h"

// What the sources of this room need to call the C ABI of rust/textkit.

namespace cohort::text {

inline TkStr to_tk(std::string_view text) {
  return {text.data(), text.size()};
}

/// Makes a message that others wrote fit for a terminal: control characters, line ends included, as
/// \xNN, what is no UTF-8 as U+FFFD; the rest stays.
inline std::string without_controls(std::string_view text) {
  std::string whole, shown;
  Utf8Assembler assembler;
  assembler.push(text, whole);
  assembler.finish(whole);
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto byte = static_cast<uint8_t>(whole[i]);
    const bool is_c1 = byte == 0xC2 && static_cast<uint8_t>(whole[i + 1]) < 0xA0;
    if (byte < 0x20 || byte == 0x7F || is_c1) {
      shown += fmt::format("\\x{:02x}", static_cast<uint8_t>(is_c1 ? whole[++i] : byte));
    } else {
      shown += whole[i];
    }
  }
  return shown;
}

/// Throws our exception for a status of textkit other than 0. The message may quote what the files
/// of a model say, and that of a worker may be any bytes.
[[noreturn]] inline void throw_failure(int64_t status, std::string_view from_outside) {
  const std::string message = without_controls(from_outside);
  if (status == TK_KWARGS) throw Error(ErrorKind::kInvalidRequest, message, "chat_template_kwargs");
  const ErrorKind kind = status == TK_INVALID       ? ErrorKind::kInvalidRequest
                         : status == TK_UNSUPPORTED ? ErrorKind::kUnsupported
                                                    : ErrorKind::kInternal;
  throw Error(kind, message);
}

/// The same, if there was a failure; frees its message.
inline void throw_unless_done(int32_t status, TkText message) {
  if (status == 0) return;
  const std::string text(message.data, message.size);
  tk_text_free(message);
  throw_failure(status, text);
}

/// Frees the owned buffer even if copying it throws.
inline std::string take(TkText text) {
  struct Free {
    TkText text;
    ~Free() { tk_text_free(text); }
  } owned{text};
  return {text.data, text.size};
}

inline std::vector<int32_t> take(TkIds ids) {
  struct Free {
    TkIds ids;
    ~Free() { tk_ids_free(ids); }
  } owned{ids};
  return {ids.data, ids.data + ids.size};
}

/// The Rust tokenizer and its borrowed table of what each id stands for.
struct Tokenizer::Handle {
  explicit Handle(TkTokenizer* made) : tokenizer(made), pieces(tk_tokenizer_pieces(made)) {}
  ~Handle() { tk_tokenizer_free(tokenizer); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  bool knows(int32_t id) const { return id >= 0 && static_cast<uint32_t>(id) < pieces.num_ids; }
  bool is_special(int32_t id) const { return pieces.special[id] != 0; }
  std::string_view bytes_of(int32_t id) const {
    const uint32_t begin = pieces.offsets[id];
    return {pieces.bytes + begin, pieces.offsets[id + 1] - begin};
  }

  TkTokenizer* const tokenizer;
  const TkPieceTable pieces;
};

}  // namespace cohort::text
