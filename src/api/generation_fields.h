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
  bool stream = false;
  bool include_usage = false;
};

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

/// Reads a body by an endpoint's table. null means absent everywhere. A field of the table of
/// harmless fields (harmless_fields.cpp) is accepted with the values that change nothing.
///   throws  kInvalidRequest, kUnsupported naming any other field, and what is supported
Draft read_fields(const boost::json::object& body, std::span<const Field> fields,
                  const serving::ModelInfo& model);

/// If `name` is a field that some clients send although it changes nothing.
///   returns  false if there is no such field
///   throws   kUnsupported when its value would change something
bool accept_harmless(std::string_view name, const boost::json::value& value);

// Readers that the endpoints' tables share.

void read_model(const Reading& reading);
void read_max_tokens(const Reading& reading);
void read_max_completion_tokens(const Reading& reading);
void read_temperature(const Reading& reading);
void read_top_p(const Reading& reading);
void read_top_k(const Reading& reading);
void read_min_p(const Reading& reading);
void read_repetition_penalty(const Reading& reading);
void read_presence_penalty(const Reading& reading);
void read_frequency_penalty(const Reading& reading);
/// Any integer of 64 bits, signed or not; a negative one stands for its two's complement.
void read_seed(const Reading& reading);
/// A string or up to 16 of them, each of 1 to 4096 bytes.
void read_stop(const Reading& reading);
/// Up to 1024 token ids, each with a number from -100 to 100.
void read_logit_bias(const Reading& reading);
void read_ignore_eos(const Reading& reading);
void read_stream(const Reading& reading);
void read_stream_options(const Reading& reading);

}  // namespace cohort::api
