#include <fmt/format.h>

#include <utility>

#include "api/generation.h"
#include "api/json_input.h"
#include "api/openai.h"

namespace cohort::api {

namespace json = boost::json;

namespace {

bool holds_only_ids(const json::array& list) {
  return std::ranges::all_of(list, [](const json::value& id) { return id.is_number(); });
}

std::vector<int32_t> read_ids(const json::array& list, const serving::ModelInfo& model) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    ids.push_back(static_cast<int32_t>(
        read_integer(list[i], fmt::format("prompt[{}]", i), 0, model.vocab_size - 1)));
  }
  return ids;
}

/// "text", ["text"], [1, 2] or [[1, 2]].
void read_prompt(const Reading& reading) {
  constexpr std::string_view kForms =
      "prompt must be a string or a list of token ids, or a list of one of these";
  const json::value* prompt = &reading.value;
  if (prompt->is_array() && !holds_only_ids(prompt->get_array())) {
    const json::array& list = prompt->get_array();
    const auto is_prompt = [](const json::value& v) { return v.is_string() || v.is_array(); };
    if (!std::ranges::all_of(list, is_prompt))
      refuse("prompt", std::string(kForms), "invalid_type");
    if (list.size() != 1) {
      refuse_unsupported("prompt", fmt::format("prompt is a list of {} prompts: send a request for "
                                               "each of them",
                                               list.size()));
    }
    prompt = &list.front();
  }
  if (prompt->is_string()) {
    reading.draft.prompt = std::string(prompt->get_string());
  } else if (prompt->is_array() && !prompt->get_array().empty() &&
             holds_only_ids(prompt->get_array())) {
    reading.draft.prompt = read_ids(prompt->get_array(), reading.model);
  } else {
    refuse("prompt", std::string(kForms), "invalid_type");
  }
}

/// OpenAI takes up to 5; the clients that score with completions ask for more.
void read_logprobs(const Reading& reading) {
  reading.draft.request.top_logprobs =
      static_cast<int>(read_integer(reading.value, reading.name, 0, kTopLogprobsMax));
}

constexpr Field kFields[] = {{"prompt", read_prompt}, {"logprobs", read_logprobs}};

json::object text_part(std::string_view text) {
  return {{"text", text}};
}

json::object empty_part() {
  return text_part("");
}

constexpr AnswerShape kShape{.id_prefix = "cmpl-",
                             .object = "text_completion",
                             .chunk_object = "text_completion",
                             .whole = text_part,
                             .piece = text_part,
                             .opening = nullptr,
                             .closing = empty_part,
                             .logprobs = completion_logprobs};

}  // namespace

Draft read_completion(const json::object& body, const serving::ModelInfo& model) {
  Draft draft = read_fields(body, kFields, model);
  if (std::holds_alternative<std::monostate>(draft.prompt)) {
    refuse("prompt", "prompt is required", "missing_required_parameter");
  }
  return draft;
}

Outcome completion(serving::ModelService& service, const Call& call) {
  require_ready(service);
  Draft draft = traced(call.trace.get(), "request.body_parse",
                       [&] { return read_completion(parse_object(call.body), service.info()); });
  std::vector<int32_t> prompt = traced(call.trace.get(), "request.prompt", [&] {
    const auto* text = std::get_if<std::string>(&draft.prompt);
    return text ? service.tokenize(*text) : std::get<std::vector<int32_t>>(std::move(draft.prompt));
  });
  return generate(service, call, std::move(draft), std::move(prompt), "prompt", kShape);
}

}  // namespace cohort::api
