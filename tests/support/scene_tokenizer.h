#pragma once

#include "text/tokenizer.h"

namespace cohort::test {

/// A tokenizer whose tokens are single letters: what the text of an answer is does not matter here.
inline const text::Tokenizer& scene_tokenizer() {
  static const text::Tokenizer made = text::Tokenizer::from_gguf([] {
    text::GgufVocabulary vocabulary;
    vocabulary.model = "gpt2";
    vocabulary.pre = "gpt-2";
    for (char c = 'a'; c <= 'z'; ++c) {
      vocabulary.tokens.push_back(std::string(1, c));
      vocabulary.token_types.push_back(1);
    }
    vocabulary.tokens.push_back("ab");
    vocabulary.token_types.push_back(1);
    vocabulary.merges = {"a b"};
    return vocabulary;
  }());
  return made;
}

}  // namespace cohort::test
