#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/stream.h"
#include "serving/model_service.h"

namespace cohort::api {

/// A token's score and where the token begins.
struct PlacedScore {
  engine::ScoredToken scored;
  size_t offset = 0;  // characters of the answer's text that begin before it
};

/// Follows the text of one choice, which may come later than its tokens: part of a character or of
/// a possible stop string is held back.
class TextPosition {
 public:
  /// The scores of the choice's next event.
  std::vector<PlacedScore> place(const engine::TokenEvent& event,
                                 const serving::ModelService& service);

 private:
  size_t shown_ = 0;  // characters of the text so far
  std::string held_;  // bytes of tokens whose text is held back
};

/// {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}
boost::json::object chat_logprobs(std::span<const PlacedScore> scores,
                                  const serving::ModelService& service);
/// {"tokens": [], "token_logprobs": [], "top_logprobs": [{text: logprob}], "text_offset": []}; the
/// chosen token is always among its alternatives, as at OpenAI.
boost::json::object completion_logprobs(std::span<const PlacedScore> scores,
                                        const serving::ModelService& service);

}  // namespace cohort::api
