#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "api/generation.h"
#include "api/json_input.h"
#include "api/openai.h"

namespace cohort::api {

namespace json = boost::json;

namespace {

constexpr size_t kMessagesMax = 65536;

void read_role(const json::value& value, const std::string& name, prompt::Message& message) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant"};
  const std::string_view role = read_text(value, name);
  if (role == "tool" || role == "function") {
    refuse_unsupported(name, fmt::format("{}: the role '{}' is not supported yet; supported: {}",
                                         name, role, fmt::join(kRoles, ", ")));
  }
  if (std::ranges::find(kRoles, role) == std::end(kRoles)) {
    refuse(name,
           fmt::format("{} is {}; supported: {}", name, in_quotes(role), fmt::join(kRoles, ", ")));
  }
  message.role = role;
}

std::string_view read_part(const json::value& part, const std::string& name) {
  if (!part.is_object()) refuse(name, fmt::format("{} must be an object", name), "invalid_type");
  const json::object& fields = part.get_object();
  const json::value* type = fields.if_contains("type");
  const std::string type_name = name + ".type";
  if (!type) refuse(type_name, type_name + " is required", "missing_required_parameter");
  if (read_text(*type, type_name) != "text") {
    refuse_unsupported(type_name, fmt::format("{} is {}; this model takes only 'text'", type_name,
                                              in_quotes(type->get_string())));
  }
  const json::value* text = fields.if_contains("text");
  const std::string text_name = name + ".text";
  if (!text) refuse(text_name, text_name + " is required", "missing_required_parameter");
  for (const auto& [key, value] : fields) {
    // cache_control is a hint about caching that agents attach to parts.
    if (value.is_null() || key == "type" || key == "text" || key == "cache_control") continue;
    refuse(name, fmt::format("unknown field {} in {}; supported: type, text", in_quotes(key), name),
           "unknown_parameter");
  }
  return read_text(*text, text_name);
}

/// A string, or text parts, which are joined by line breaks.
void read_content(const json::value& value, const std::string& name, prompt::Message& message) {
  if (value.is_string()) {
    message.content = value.get_string();
    return;
  }
  if (!value.is_array() || value.get_array().empty()) {
    refuse(name, fmt::format("{} must be a string or a non-empty list of parts", name),
           "invalid_type");
  }
  const json::array& parts = value.get_array();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) message.content += '\n';
    message.content += read_part(parts[i], fmt::format("{}[{}]", name, i));
  }
}

/// Clients send back an answer as they got it, with the parts that it did not have.
bool is_empty_leftover(std::string_view key, const json::value& value) {
  if (key == "refusal" || key == "reasoning_content" || key == "reasoning") {
    return value == json::value("");
  }
  return (key == "annotations" || key == "tool_calls") && value == json::value(json::array{});
}

prompt::Message read_message(const json::value& value, const std::string& name) {
  if (!value.is_object()) refuse(name, fmt::format("{} must be an object", name), "invalid_type");
  prompt::Message message;
  bool has_content = false;
  for (const auto& [key, field] : value.get_object()) {
    if (field.is_null()) continue;
    const std::string field_name = fmt::format("{}.{}", name, shortened(key));
    if (key == "role") {
      read_role(field, field_name, message);
    } else if (key == "content") {
      read_content(field, field_name, message);
      has_content = true;
    } else if (key == "name") {
      message.name = read_text(field, field_name);
    } else if (!is_empty_leftover(key, field)) {
      refuse_unsupported(
          field_name,
          fmt::format("{} is not supported; supported: role, content, name", in_quotes(field_name)),
          "unknown_parameter");
    }
  }
  if (message.role.empty()) {
    refuse(name + ".role", name + ".role is required", "missing_required_parameter");
  }
  if (!has_content) {
    refuse(name + ".content", name + ".content is required", "missing_required_parameter");
  }
  return message;
}

void read_messages(const Reading& reading) {
  if (!reading.value.is_array() || reading.value.get_array().empty()) {
    refuse(reading.name, "messages must be a non-empty list", "invalid_type");
  }
  const json::array& list = reading.value.get_array();
  if (list.size() > kMessagesMax) {
    refuse(reading.name, fmt::format("messages has {} entries: at most {} are supported",
                                     list.size(), kMessagesMax));
  }
  auto& messages = reading.draft.conversation.emplace().messages;
  messages.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    messages.push_back(read_message(list[i], fmt::format("messages[{}]", i)));
  }
}

void read_template_kwargs(const Reading& reading) {
  if (!reading.value.is_object()) {
    refuse(reading.name, "chat_template_kwargs must be an object", "invalid_type");
  }
  reading.draft.template_kwargs_json = json::serialize(reading.value);
}

void read_max_completion_tokens(const Reading& reading) {
  reading.draft.max_completion_tokens = read_length(reading);
}

void read_logprobs(const Reading& reading) {
  reading.draft.logprobs = read_bool(reading.value, reading.name);
}

void read_top_logprobs(const Reading& reading) {
  reading.draft.request.top_logprobs =
      static_cast<int>(read_integer(reading.value, reading.name, 0, kTopLogprobsMax));
}

/// logprobs and top_logprobs may come in any order. Clients send a top_logprobs of 0 for "none".
void settle_logprobs(Draft& draft) {
  std::optional<int>& top = draft.request.top_logprobs;
  if (!draft.logprobs && top.value_or(0) > 0) {
    refuse("top_logprobs", "top_logprobs needs logprobs to be true");
  }
  top = draft.logprobs ? std::optional(top.value_or(0)) : std::nullopt;
}

constexpr Field kFields[] = {
    {"messages", read_messages},
    {"logprobs", read_logprobs},
    {"top_logprobs", read_top_logprobs},
    {"max_completion_tokens", read_max_completion_tokens},
    {"chat_template_kwargs", read_template_kwargs},
};

json::object message_part(std::string_view text) {
  return {
      {"message", json::object{{"role", "assistant"}, {"content", text}, {"refusal", nullptr}}}};
}

json::object delta_part(std::string_view text) {
  return {{"delta", json::object{{"content", text}}}};
}

json::object role_part() {
  return {{"delta", json::object{{"role", "assistant"}, {"content", ""}}}};
}

json::object empty_part() {
  return {{"delta", json::object{}}};
}

constexpr AnswerShape kShape{.id_prefix = "chatcmpl-",
                             .object = "chat.completion",
                             .chunk_object = "chat.completion.chunk",
                             .whole = message_part,
                             .piece = delta_part,
                             .opening = role_part,
                             .closing = empty_part,
                             .logprobs = chat_logprobs};

}  // namespace

Draft read_chat(const json::object& body, const serving::ModelInfo& model) {
  Draft draft = read_fields(body, kFields, model);
  if (!draft.conversation) {
    refuse("messages", "messages is required", "missing_required_parameter");
  }
  settle_logprobs(draft);
  draft.conversation->template_kwargs_json = std::move(draft.template_kwargs_json);
  return draft;
}

Outcome chat_completion(serving::ModelService& service, const Call& call) {
  require_ready(service);
  Draft draft = traced(call.trace.get(), "request.body_parse",
                       [&] { return read_chat(parse_object(call.body), service.info()); });
  std::vector<int32_t> prompt = traced(call.trace.get(), "request.prompt",
                                       [&] { return service.render(*draft.conversation); });
  return generate(service, call, std::move(draft), std::move(prompt), "messages", kShape);
}

}  // namespace cohort::api
