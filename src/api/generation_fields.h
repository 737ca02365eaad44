#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "prompt/conversation.h"
#include "serving/model_service.h"

namespace cohort::api {

/// A request for a generation, read but not yet tokenized.
struct Draft {
  std::optional<std::string> model;  // absent = the loaded one
  std::optional<prompt::Conversation> conversation;
  std::string template_kwargs_json;
  std::variant<std::monostate, std::string, std::vector<int32_t>> prompt;
  engine::Request request;
  std::optional<int64_t> max_completion_tokens;  // the newer name of max_tokens
  std::optional<engine::Priority> priority;      // absent = what the head of the call says
  std::string prompt_cache_key;                  // another name of the session
  int best_of = 1;
  bool logprobs = false;  // a chat asks for them; request.top_logprobs says how many
  bool stream = false;
  bool include_usage = false;
};

/// Alternatives to a token that a request may ask for.
constexpr int kTopLogprobsMax = 20;

/// One value being read into a draft.
struct Reading {
  const boost::json::value& value;  // never null
  std::string_view name;
  const serving::ModelInfo& model;
  Draft& draft;
};

/// One field that an endpoint understands.
struct Field {
  std::string_view name;
  void (*read)(const Reading& reading);
};

/// Reads a body: by an endpoint's own table, then by that of the fields that all generations have
/// (model, lengths, sampling, streaming). null means absent everywhere. A field of the table of
/// harmless fields (harmless_fields.cpp) is accepted with the values that change nothing.
///   throws  kInvalidRequest, kUnsupported naming any other field, and what is supported
Draft read_fields(const boost::json::object& body, std::span<const Field> own,
                  const serving::ModelInfo& model);

/// If `name` is a field that some clients send although it changes nothing.
///   returns  false if there is no such field
///   throws   kUnsupported when its value would change something
bool accept_harmless(std::string_view name, const boost::json::value& value);

/// What to send instead of an unknown field that means something to other servers; or "".
std::string_view own_name(std::string_view name);

/// How many tokens an answer may have.
int64_t read_length(const Reading& reading);

/// Names of what is kept as long as prefixes are: a salt, a session.
///   throws   kInvalidRequest beyond 512 bytes
void require_short(std::string_view text, std::string_view name, std::string_view param);

}  // namespace cohort::api
