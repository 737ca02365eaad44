#include "engine/request.h"

#include "base/error.h"

namespace cohort::engine {

void require_fit(const Request& request, int64_t context_tokens) {
  const auto refuse = [](const std::string& field, const std::string& message, const char* code) {
    throw Error(ErrorKind::kInvalidRequest, message, field, code);
  };
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) {
    refuse(request.prompt_field, fmt::format("{} has no tokens", request.prompt_field),
           "invalid_value");
  }
  if (prompt >= context_tokens) {
    refuse(request.prompt_field,
           fmt::format("the prompt has {} tokens: it must be shorter than the context of {}",
                       prompt, context_tokens),
           "context_length_exceeded");
  }
  if (request.max_tokens && *request.max_tokens < 1) {
    refuse(request.max_tokens_field, "max_tokens must be at least 1", "invalid_value");
  }
  if (request.max_tokens && *request.max_tokens > context_tokens - prompt) {
    refuse(request.max_tokens_field,
           fmt::format("the prompt has {} tokens and {} is {}: together they must not exceed the "
                       "context of {}; at most {} can be generated",
                       prompt, request.max_tokens_field, *request.max_tokens, context_tokens,
                       context_tokens - prompt),
           "context_length_exceeded");
  }
}

}  // namespace cohort::engine
