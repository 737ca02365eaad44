#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace cohort::model {
struct Checkpoint;
}

namespace cohort::serving {

/// The tokenizer of a checkpoint.
///   throws  Error{kInvalidRequest} if there is none or it is damaged
text::Tokenizer load_tokenizer(const model::Checkpoint& checkpoint);

/// The chat template of a checkpoint, or of `source` if that is not empty; null if there is none.
std::unique_ptr<text::ChatTemplate> load_template(const model::Checkpoint& checkpoint,
                                                  const std::string& source);

/// Tokens that end an answer: the union of what generation config, config and tokenizer say.
///   throws  Error{kInvalidRequest} naming the key whose value is no id of the vocabulary
std::set<int32_t> end_tokens(const model::Checkpoint& checkpoint, const text::Tokenizer& tokenizer,
                             int32_t vocab_size);

/// The tokens to put before plain text: what the post-processor of tokenizer.json does, unless an
/// add_bos_token of tokenizer_config.json overrules it; BOS if the metadata of a GGUF file says so.
///   throws  as end_tokens, for these tokens
std::vector<int32_t> leading_tokens(const model::Checkpoint& checkpoint,
                                    const text::Tokenizer& tokenizer, int32_t vocab_size);

/// Sampling values of generation_config.json; "do_sample": false is temperature 0.
///   throws  Error{kInvalidRequest} naming a value outside its range
engine::SamplingOptions recommended_sampling(const model::Checkpoint& checkpoint);

}  // namespace cohort::serving
