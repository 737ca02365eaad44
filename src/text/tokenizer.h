#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::text {

/// The vocabulary embedded in a GGUF file (keys `tokenizer.ggml.*`), as the checkpoint reader found
/// it.
///   source  GGUF specification; llama.cpp's vocabulary loader for the meaning of `model` and `pre`
struct GgufVocabulary {
  std::string model;  // "gpt2" (byte-level BPE), "llama" (SentencePiece scores) or "gemma4"
  std::string pre;    // pre-tokenizer name, "gpt2" models only
  std::vector<std::string> tokens;
  std::vector<float> scores;         // "llama" models only
  std::vector<int32_t> token_types;  // 1 normal 2 unknown 3 control 4 user-defined 5 unused 6 byte
  std::vector<std::string> merges;   // "gpt2" and "gemma4" models only
  int32_t unknown_id = -1;           // -1 = absent
  bool add_space_prefix = true;
};

/// Whether strings such as `<|im_start|>` in the text become the special token or stay text.
enum class SpecialTokens { kParse, kAsText };

/// Text to token ids and back. Immutable after construction: any thread.
///   cost  encode 0.2 to 0.5 us a byte, decode about 20 ns a token
class Tokenizer {
 public:
  /// From the bytes of a Hugging Face `tokenizer.json`. Its truncation and padding are ignored.
  ///   throws  Error{kInvalidRequest} naming what is wrong, Error{kUnsupported} for a decoder that
  ///           does not work token by token (WordPiece, CTC) or BPE dropout
  static Tokenizer from_json(std::string_view json);
  ///   throws  Error{kInvalidRequest}, or Error{kUnsupported} for an unknown `model` or `pre`,
  ///           listing the known ones
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Encodes without adding BOS or EOS (serving adds them where the model wants them).
  /// Added tokens that are not special (`<think>` of some models) are parsed either way.
  ///   throws  Error{kInvalidRequest} if the text is not UTF-8
  std::vector<int32_t> encode(std::string_view text, SpecialTokens special) const;
  /// Decodes; ids of special tokens are skipped unless `special` is kAsText. Invalid UTF-8 becomes
  /// U+FFFD, one for each longest beginning of a character (the rule of Unicode and of Python).
  /// Ids outside the vocabulary decode to nothing.
  std::string decode(const std::vector<int32_t>& ids, SpecialTokens special) const;
  /// What the post-processor of a tokenizer.json puts before a text; none for GGUF. What it puts
  /// after one (EOS, SEP) is dropped: an answer continues the text.
  std::vector<int32_t> leading_ids() const;
  /// One more than the largest id.
  int32_t vocab_size() const;
  /// What the token adds to a text, in which a special one is read as text; may begin or end inside
  /// a character. Empty for an id outside the vocabulary. Valid for the life of the tokenizer.
  std::string_view bytes_of(int32_t id) const;
  bool is_special(int32_t id) const;
  /// The id of exactly this token, or -1.
  int32_t token_to_id(std::string_view token) const;

 private:
  friend class ChatTemplate;
  friend class Detokenizer;
  struct Handle;
  explicit Tokenizer(std::shared_ptr<const Handle> handle);
  std::shared_ptr<const Handle> handle_;  // shared with the detokenizers made from it
};

/// Decodes one answer token by token; what it returns is always whole UTF-8 characters.
///   thread  one (the engine thread)
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer);
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  ~Detokenizer();

  /// The text that becomes certain with this token; empty while a character is incomplete.
  /// Special tokens yield nothing. The concatenation equals Tokenizer::decode of all ids.
  std::string push(int32_t id);
  /// What was still held back: an incomplete character becomes U+FFFD. Starts a new text.
  std::string finish();

 private:
  friend class Tokenizer;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::text
