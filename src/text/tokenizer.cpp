#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/textkit_calls.h"
#include "text/utf8_assembler.h"

namespace cohort::text {
namespace {

std::vector<TkStr> views(const std::vector<std::string>& strings) {
  std::vector<TkStr> result(strings.size());
  std::transform(strings.begin(), strings.end(), result.begin(), to_tk);
  return result;
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Handle> handle) : handle_(std::move(handle)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_json(std::string_view json) {
  TkTokenizer* made = nullptr;
  TkText error{};
  throw_unless_done(tk_tokenizer_from_json(to_tk(json), &made, &error), error);
  return Tokenizer(std::make_shared<const Handle>(made));
}

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  const std::vector<TkStr> tokens = views(vocabulary.tokens);
  const std::vector<TkStr> merges = views(vocabulary.merges);
  const TkGgufArrays arrays{
      .model = to_tk(vocabulary.model),
      .pre = to_tk(vocabulary.pre),
      .tokens = tokens.data(),
      .scores = vocabulary.scores.data(),
      .token_types = vocabulary.token_types.data(),
      .merges = merges.data(),
      .num_tokens = tokens.size(),
      .num_scores = vocabulary.scores.size(),
      .num_token_types = vocabulary.token_types.size(),
      .num_merges = merges.size(),
      .unknown_id = vocabulary.unknown_id,
      .add_space_prefix = vocabulary.add_space_prefix,
  };
  TkTokenizer* made = nullptr;
  TkText error{};
  throw_unless_done(tk_tokenizer_from_gguf(&arrays, &made, &error), error);
  return Tokenizer(std::make_shared<const Handle>(made));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  TkIds ids{};
  TkText error{};
  const bool parse = special == SpecialTokens::kParse;
  throw_unless_done(tk_tokenizer_encode(handle_->tokenizer, to_tk(text), parse, &ids, &error),
                    error);
  return take(ids);
}

std::vector<int32_t> Tokenizer::leading_ids() const {
  return take(tk_tokenizer_leading_ids(handle_->tokenizer));
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(handle_->pieces.num_ids);
}

std::string_view Tokenizer::bytes_of(int32_t id) const {
  return handle_->knows(id) ? handle_->bytes_of(id) : std::string_view();
}

bool Tokenizer::is_special(int32_t id) const {
  return handle_->knows(id) && handle_->is_special(id);
}

int32_t Tokenizer::token_to_id(std::string_view token) const {
  return tk_tokenizer_token_to_id(handle_->tokenizer, to_tk(token));
}

struct Detokenizer::State {
  State(std::shared_ptr<const Tokenizer::Handle> handle, SpecialTokens special_tokens)
      : tokenizer(std::move(handle)),
        special(special_tokens),
        leading_spaces(tokenizer->pieces.leading_spaces) {}

  void push(int32_t id, std::string& out) {
    if (!tokenizer->knows(id)) return;
    if (special == SpecialTokens::kParse && tokenizer->is_special(id)) return;
    std::string_view bytes = tokenizer->bytes_of(id);
    while (leading_spaces > 0 && !bytes.empty()) {
      if (bytes.front() != ' ') {
        leading_spaces = 0;
        break;
      }
      bytes.remove_prefix(1);
      --leading_spaces;
    }
    assembler.push(bytes, out);
  }

  void finish(std::string& out) {
    assembler.finish(out);
    leading_spaces = tokenizer->pieces.leading_spaces;
  }

  std::shared_ptr<const Tokenizer::Handle> tokenizer;
  SpecialTokens special;
  uint32_t leading_spaces;  // still to drop: SentencePiece puts one before every text
  Utf8Assembler assembler;
};

std::string Tokenizer::decode(const std::vector<int32_t>& ids, SpecialTokens special) const {
  Detokenizer::State state(handle_, special);
  std::string text;
  for (const int32_t id : ids) state.push(id, text);
  state.finish(text);
  return text;
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer)
    : state_(std::make_unique<State>(tokenizer.handle_, SpecialTokens::kParse)) {}
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;
Detokenizer::~Detokenizer() = default;

std::string Detokenizer::push(int32_t id) {
  std::string text;
  state_->push(id, text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  state_->finish(text);
  return text;
}

}  // namespace cohort::text
