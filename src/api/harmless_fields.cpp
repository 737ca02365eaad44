#include <fmt/format.h>
#include <algorithm>

#include "api/generation_fields.h"
#include "api/json_input.h"

namespace cohort::api {

namespace json = boost::json;

namespace {

bool any_bool(const json::value& value) {
  return value.is_bool();
}
bool any_text(const json::value& value) {
  return value.is_string();
}
bool any_object(const json::value& value) {
  return value.is_object();
}
bool is_true(const json::value& value) {
  return value == json::value(true);
}
bool is_false(const json::value& value) {
  return value == json::value(false);
}
bool is_zero(const json::value& value) {
  return value.is_number() && value.to_number<double>() == 0;
}
bool is_one(const json::value& value) {
  return value.is_number() && value.to_number<double>() == 1;
}
bool empty_text(const json::value& value) {
  return value == json::value("");
}
bool empty_list(const json::value& value) {
  return value.is_array() && value.get_array().empty();
}
bool is_none(const json::value& value) {
  return value == json::value("none");
}
bool none_or_auto(const json::value& value) {
  return is_none(value) || value == json::value("auto");
}
bool is_medium(const json::value& value) {
  return value == json::value("medium");
}
bool default_tier(const json::value& value) {
  return value == json::value("auto") || value == json::value("default");
}
bool only_text(const json::value& value) {
  return value == json::value(json::array{"text"});
}
bool text_format(const json::value& value) {
  return value == json::value(json::object{{"type", "text"}});
}

struct HarmlessField {
  std::string_view name;
  bool (*changes_nothing)(const json::value& value);
  std::string_view supported;
};

// Fields that the openai SDK, LangChain, litellm, coding agents and benchmark clients send, with
// the values for which leaving them out gives the same answer.
constexpr HarmlessField kHarmless[] = {
    // Labels and hints for the provider.
    {"user", any_text, "a string"},
    {"safety_identifier", any_text, "a string"},
    {"metadata", any_object, "an object"},
    {"store", is_false, "false"},
    {"service_tier", default_tier, "'auto' or 'default'"},
    {"prompt_cache_retention", any_text, "a string"},
    // Plain text.
    {"echo", is_false, "false"},
    {"suffix", empty_text, "an empty string"},
    {"modalities", only_text, "['text']"},
    {"response_format", text_format, "{'type': 'text'}"},
    {"reasoning_effort", is_none, "'none'"},
    {"verbosity", is_medium, "'medium'"},
    // No tools.
    {"tools", empty_list, "an empty list"},
    {"functions", empty_list, "an empty list"},
    {"tool_choice", none_or_auto, "'none' or 'auto'"},
    {"function_call", none_or_auto, "'none' or 'auto'"},
    {"parallel_tool_calls", any_bool, "true or false"},
    // Sampling and decoding options of other servers, switched off.
    {"min_tokens", is_zero, "0"},
    {"length_penalty", is_one, "1"},
    {"use_beam_search", is_false, "false"},
    {"typical_p", is_one, "1"},
    {"mirostat", is_zero, "0"},
    {"xtc_probability", is_zero, "0"},
    {"dry_multiplier", is_zero, "0"},
    {"skip_special_tokens", is_true, "true"},
};

}  // namespace

bool accept_harmless(std::string_view name, const json::value& value) {
  const auto* field = std::ranges::find(kHarmless, name, &HarmlessField::name);
  if (field == std::end(kHarmless)) return false;
  if (!field->changes_nothing(value)) {
    refuse_unsupported(name, fmt::format("{} supports only {}", name, field->supported),
                       "unsupported_parameter");
  }
  return true;
}

}  // namespace cohort::api
