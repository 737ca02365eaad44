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
bool any_number(const json::value& value) {
  return value.is_number();
}
bool any_list(const json::value& value) {
  return value.is_array();
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
bool is_minus_one(const json::value& value) {
  return value.is_number() && value.to_number<double>() == -1;
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
    {"response_format", text_format, "{'type': 'text'}: JSON output is not supported yet"},
    {"reasoning_effort", is_none, "'none'"},
    {"verbosity", is_medium, "'medium'"},
    // No tools.
    {"tools", empty_list, "an empty list: calls of tools are not supported yet"},
    {"functions", empty_list, "an empty list: calls of tools are not supported yet"},
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
    {"spaces_between_special_tokens", is_true, "true"},
    {"include_stop_str_in_output", is_false, "false"},
    {"stop_token_ids", empty_list, "an empty list"},
    {"bad_words", empty_list, "an empty list"},
    {"add_generation_prompt", is_true, "true"},
    {"continue_final_message", is_false, "false"},
    {"documents", empty_list, "an empty list"},
    {"detokenize", is_true, "true"},
    {"return_token_ids", is_false, "false"},
    {"return_tokens_as_token_ids", is_false, "false"},
    {"typ_p", is_one, "1"},
    {"tfs_z", is_one, "1"},
    {"dynatemp_range", is_zero, "0"},
    {"n_keep", is_zero, "0"},
    {"n_probs", is_zero, "0"},
    {"min_keep", is_zero, "0"},
    {"id_slot", is_minus_one, "-1"},
    {"grammar", empty_text, "an empty string"},
    {"lora", empty_list, "an empty list"},
    {"timings_per_token", is_false, "false"},
    {"return_progress", is_false, "false"},
    // How much of it there is of what is off.
    {"mirostat_tau", any_number, "a number"},
    {"mirostat_eta", any_number, "a number"},
    {"xtc_threshold", any_number, "a number"},
    {"dynatemp_exponent", any_number, "a number"},
    {"dry_base", any_number, "a number"},
    {"dry_allowed_length", any_number, "a number"},
    {"dry_penalty_last_n", any_number, "a number"},
    {"dry_sequence_breakers", any_list, "a list"},
};

/// What other servers call a field that this one has.
struct OtherName {
  std::string_view name, here;
};
constexpr OtherName kOtherNames[] = {
    {"n_predict", "max_tokens"},
    {"max_new_tokens", "max_tokens"},
    {"max_completion_tokens", "max_tokens"},
    {"repeat_penalty", "repetition_penalty"},
    {"stop_sequences", "stop"},
    {"random_seed", "seed"},
    {"top_logprobs", "logprobs"},
    {"messages", "prompt"},
    {"prompt", "messages"},
    {"enable_thinking", "chat_template_kwargs"},
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

std::string_view own_name(std::string_view name) {
  const auto* other = std::ranges::find(kOtherNames, name, &OtherName::name);
  return other == std::end(kOtherNames) ? "" : other->here;
}

}  // namespace cohort::api
