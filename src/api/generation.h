#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/generation_fields.h"
#include "api/logprobs.h"
#include "api/route.h"
#include "serving/model_service.h"

namespace cohort::api {

/// How one protocol words its answers; everything else about a generation is the same for all.
struct AnswerShape {
  std::string_view id_prefix;
  std::string_view object;
  std::string_view chunk_object;
  /// The part of a choice that holds the text: of a whole answer, of one chunk. May be empty.
  boost::json::object (*whole)(std::string_view text);
  boost::json::object (*piece)(std::string_view text);
  boost::json::object (*opening)();  // the part of a first chunk; null = no such chunk
  boost::json::object (*closing)();  // the part of a last chunk
  boost::json::object (*logprobs)(std::span<const PlacedScore> scores,
                                  const serving::ModelService& service);
};

/// What every body and chunk of one answer repeats.
struct AnswerHead {
  std::string id;
  std::string model;
  int64_t created_unix_s = 0;
  uint64_t seed = 0;
  std::shared_ptr<const engine::Stream> stream = nullptr;
  size_t choices = 1;
  const serving::ModelService* scorer = nullptr;  // says what tokens stand for; null = no logprobs
};

/// Throws kUnavailable unless the model can take requests.
void require_ready(const serving::ModelService& service);

/// The name of the model, as asked for.
///   throws  kNotFound naming what there is
std::string model_id(std::string_view asked, const serving::ModelInfo& info);

/// Submits the draft of a call whose prompt is tokenized, and says how to word the answer.
///   prompt_field  the field that the error about a prompt that is too long names
///   throws        kNotFound (model), whatever submit() throws
Outcome generate(serving::ModelService& service, const Call& call, Draft draft,
                 std::vector<int32_t> prompt, std::string_view prompt_field,
                 const AnswerShape& shape);

/// The body of a complete answer, or the error that ended it.
Reply whole_answer(const AnswerShape& shape, const AnswerHead& head, const Events& all);

/// Turns the events of one stream into server-sent events, in order:
/// of each choice an opening chunk, one chunk per piece of text or of logprobs, and one with the
/// finish reason; after all choices one chunk with the usage if asked for, and "[DONE]". A failure
/// is one {"error"} event, and no "[DONE]".
class ChunkWriter {
 public:
  ChunkWriter(const AnswerShape& shape, AnswerHead head, bool include_usage)
      : shape_(shape),
        head_(std::move(head)),
        include_usage_(include_usage),
        choices_(head_.choices) {}

  std::string write(const Events& arrived);

 private:
  struct Choice {
    bool opened = false;
    TextPosition position;
  };

  void write_event(const engine::TokenEvent& event, std::string& out);
  void write_chunk(boost::json::array choices, boost::json::value usage, std::string& out);

  const AnswerShape& shape_;  // static
  const AnswerHead head_;
  const bool include_usage_;
  std::vector<Choice> choices_;
  size_t completion_tokens_ = 0;
};

}  // namespace cohort::api
