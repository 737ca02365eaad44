#include "api/generation_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "api/json_input.h"
#include "api/priority.h"
#include "base/error.h"

namespace cohort::api {

namespace json = boost::json;

namespace {

constexpr size_t kStopStringsMax = 16;
constexpr size_t kStopBytesMax = 4096;
constexpr size_t kLogitBiasMax = 1024;
constexpr int kChoicesMax = 128;

void add_stop(const json::value& value, std::string_view name, Draft& draft) {
  const std::string_view text = read_text(value, name);
  if (text.empty() || text.size() > kStopBytesMax) {
    refuse(name, fmt::format("{} must have 1 to {} bytes", name, kStopBytesMax));
  }
  draft.request.stop.emplace_back(text);
}

int32_t read_token_id(std::string_view key, std::string_view name, int32_t vocab_size) {
  int32_t id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool canonical =
      error == std::errc() && end == key.data() + key.size() && fmt::format_int(id).str() == key;
  if (!canonical || id < 0 || id >= vocab_size) {
    refuse(name, fmt::format("{} has the key {}: keys must be token ids from 0 to {}", name,
                             in_quotes(key), vocab_size - 1));
  }
  return id;
}

void read_model(const Reading& reading) {
  reading.draft.model = read_text(reading.value, reading.name);
}

void read_max_tokens(const Reading& reading) {
  reading.draft.request.max_tokens = read_length(reading);
}

void read_n(const Reading& reading) {
  const int most = std::min(kChoicesMax, reading.model.choices_max);
  reading.draft.request.choices = static_cast<int>(read_integer(
      reading.value, reading.name, 1, most, most < kChoicesMax ? ": the server's --max-rows" : ""));
}

void read_best_of(const Reading& reading) {
  reading.draft.best_of =
      static_cast<int>(read_integer(reading.value, reading.name, 1, kChoicesMax));
}

void read_temperature(const Reading& reading) {
  reading.draft.request.sampling.temperature =
      read_float(reading.value, reading.name, {.least = 0, .most = 2});
}

void read_top_p(const Reading& reading) {
  reading.draft.request.sampling.top_p =
      read_float(reading.value, reading.name, {.least = 0, .most = 1, .above_least = true});
}

/// 0 and -1 are off.
void read_top_k(const Reading& reading) {
  const int64_t k =
      read_integer(reading.value, reading.name, -1, std::numeric_limits<int32_t>::max());
  reading.draft.request.sampling.top_k = static_cast<int32_t>(std::max<int64_t>(k, 0));
}

void read_min_p(const Reading& reading) {
  reading.draft.request.sampling.min_p =
      read_float(reading.value, reading.name, {.least = 0, .most = 1});
}

void read_repetition_penalty(const Reading& reading) {
  reading.draft.request.sampling.repetition_penalty =
      read_float(reading.value, reading.name, {.least = 0, .most = 100, .above_least = true});
}

void read_presence_penalty(const Reading& reading) {
  reading.draft.request.sampling.presence_penalty =
      read_float(reading.value, reading.name, {.least = -2, .most = 2});
}

void read_frequency_penalty(const Reading& reading) {
  reading.draft.request.sampling.frequency_penalty =
      read_float(reading.value, reading.name, {.least = -2, .most = 2});
}

/// Any integer of 64 bits, signed or not; a negative one stands for its two's complement, but -1,
/// as for llama-server, for a seed of the server's choice.
void read_seed(const Reading& reading) {
  if (reading.value == json::value(-1)) return;
  if (reading.value.is_uint64()) {
    reading.draft.request.sampling.seed = reading.value.get_uint64();
    return;
  }
  reading.draft.request.sampling.seed = static_cast<uint64_t>(
      read_integer(reading.value, reading.name, std::numeric_limits<int64_t>::min()));
}

/// A string or up to 16 of them, each of 1 to 4096 bytes.
void read_stop(const Reading& reading) {
  if (reading.value.is_string()) return add_stop(reading.value, reading.name, reading.draft);
  if (!reading.value.is_array()) {
    refuse(reading.name, "stop must be a string or a list of strings", "invalid_type");
  }
  const json::array& list = reading.value.get_array();
  if (list.size() > kStopStringsMax) {
    refuse(reading.name, fmt::format("stop has {} strings: at most {} are supported", list.size(),
                                     kStopStringsMax));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    add_stop(list[i], fmt::format("stop[{}]", i), reading.draft);
  }
}

/// Up to 1024 token ids, each with a number from -100 to 100.
void read_logit_bias(const Reading& reading) {
  if (!reading.value.is_object()) {
    refuse(reading.name, "logit_bias must be an object of token id: number", "invalid_type");
  }
  const json::object& biases = reading.value.get_object();
  if (biases.size() > kLogitBiasMax) {
    refuse(reading.name, fmt::format("logit_bias has {} entries: at most {} are supported",
                                     biases.size(), kLogitBiasMax));
  }
  for (const auto& [key, value] : biases) {
    const int32_t id = read_token_id(key, reading.name, reading.model.vocab_size);
    const float bias =
        read_float(value, fmt::format("logit_bias.{}", id), {.least = -100, .most = 100});
    reading.draft.request.sampling.logit_bias.emplace_back(id, bias);
  }
}

std::string_view read_name(const Reading& reading) {
  const std::string_view text = read_text(reading.value, reading.name);
  require_short(text, reading.name, reading.name);
  return text;
}

void read_session(const Reading& reading) {
  reading.draft.request.session = read_name(reading);
}

void read_prompt_cache_key(const Reading& reading) {
  reading.draft.prompt_cache_key = read_name(reading);
}

void read_cache_salt(const Reading& reading) {
  reading.draft.request.cache_salt = read_name(reading);
}

void read_cache_prompt(const Reading& reading) {
  reading.draft.request.cache_prompt = read_bool(reading.value, reading.name);
}

void read_ignore_eos(const Reading& reading) {
  reading.draft.request.ignore_eos = read_bool(reading.value, reading.name);
}

void read_kv_quant(const Reading& reading) {
  const std::string_view words = read_text(reading.value, reading.name);
  kv::KvScheme scheme;
  kv::set_quantization(scheme, words);  // throws if there is no such thing
  reading.draft.request.kv_quant = words;
}

void read_own_priority(const Reading& reading) {
  reading.draft.priority = read_priority(reading.value, reading.name);
}

void read_stream(const Reading& reading) {
  reading.draft.stream = read_bool(reading.value, reading.name);
}

void read_stream_options(const Reading& reading) {
  if (!reading.value.is_object()) {
    refuse(reading.name, "stream_options must be an object", "invalid_type");
  }
  for (const auto& [key, value] : reading.value.get_object()) {
    if (value.is_null()) continue;
    const std::string name = fmt::format("stream_options.{}", shortened(key));
    if (key == "include_usage") {
      reading.draft.include_usage = read_bool(value, name);
    } else if (key == "include_obfuscation" || key == "continuous_usage_stats") {
      if (read_bool(value, name)) refuse_unsupported(name, fmt::format("{} must be false", name));
    } else {
      refuse(name,
             fmt::format("unknown field {} in stream_options; supported: include_usage",
                         in_quotes(key)),
             "unknown_parameter");
    }
  }
}

/// What two fields say together, which may come in any order.
void settle(Draft& draft) {
  if (draft.max_completion_tokens) {
    if (draft.request.max_tokens && draft.request.max_tokens != draft.max_completion_tokens) {
      refuse("max_completion_tokens",
             "max_tokens and max_completion_tokens differ: send one of them");
    }
    draft.request.max_tokens = draft.max_completion_tokens;
    draft.request.max_tokens_field = "max_completion_tokens";
  }
  const std::string& key = draft.prompt_cache_key;
  std::string& session = draft.request.session;
  if (!key.empty() && !session.empty() && key != session) {
    refuse("prompt_cache_key", "session_id and prompt_cache_key differ: send one of them");
  }
  if (session.empty()) session = key;
  if (draft.best_of != 1 && draft.best_of != draft.request.choices) {
    refuse_unsupported("best_of",
                       fmt::format("best_of supports only 1 and n, which is {}; n is how "
                                   "many answers come back",
                                   draft.request.choices));
  }
}

/// What every generation takes.
constexpr Field kShared[] = {
    {"model", read_model},
    {"max_tokens", read_max_tokens},
    {"n", read_n},
    {"best_of", read_best_of},
    {"temperature", read_temperature},
    {"top_p", read_top_p},
    {"top_k", read_top_k},
    {"min_p", read_min_p},
    {"seed", read_seed},
    {"stop", read_stop},
    {"presence_penalty", read_presence_penalty},
    {"frequency_penalty", read_frequency_penalty},
    {"repetition_penalty", read_repetition_penalty},
    {"logit_bias", read_logit_bias},
    {"ignore_eos", read_ignore_eos},
    {"kv_quant", read_kv_quant},
    {"cache_prompt", read_cache_prompt},
    {"cache_salt", read_cache_salt},
    {"prompt_cache_key", read_prompt_cache_key},
    {"session_id", read_session},
    {"priority", read_own_priority},
    {"stream", read_stream},
    {"stream_options", read_stream_options},
};

const Field* find_field(std::span<const Field> fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &*found;
}

std::string supported_names(std::span<const Field> own) {
  std::vector<std::string_view> names;
  for (const std::span<const Field> fields : {own, std::span<const Field>(kShared)}) {
    for (const Field& field : fields) names.push_back(field.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

int64_t read_length(const Reading& reading) {
  return read_integer(reading.value, reading.name, 1, std::numeric_limits<int64_t>::max(),
                      "; leave it out for an answer that may fill the context");
}

void require_short(std::string_view text, std::string_view name, std::string_view param) {
  constexpr size_t kMost = 512;
  if (text.size() <= kMost) return;
  refuse(param, fmt::format("{} has {} bytes: at most {} are supported", name, text.size(), kMost));
}

Draft read_fields(const json::object& body, std::span<const Field> own,
                  const serving::ModelInfo& model) {
  Draft draft;
  for (const auto& [key, value] : body) {
    if (value.is_null()) continue;
    const std::string_view name = key;
    const Field* field = find_field(own, name);
    if (field == nullptr) field = find_field(kShared, name);
    if (field != nullptr) {
      field->read({.value = value, .name = field->name, .model = model, .draft = draft});
    } else if (!accept_harmless(name, value)) {
      std::string_view instead = own_name(name);
      if (find_field(own, instead) == nullptr && find_field(kShared, instead) == nullptr) {
        instead = "";
      }
      refuse(shortened(name),
             fmt::format("unknown field {}{}{}; supported: {}", in_quotes(name),
                         instead.empty() ? "" : ": here it is ", instead, supported_names(own)),
             "unknown_parameter");
    }
  }
  settle(draft);
  return draft;
}

}  // namespace cohort::api
