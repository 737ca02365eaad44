#include "api/json_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"

namespace cohort::api {

namespace json = boost::json;

void refuse(std::string_view param, const std::string& message, std::string_view code) {
  throw Error(ErrorKind::kInvalidRequest, message, std::string(param), std::string(code));
}

void refuse_unsupported(std::string_view param, const std::string& message, std::string_view code) {
  throw Error(ErrorKind::kUnsupported, message, std::string(param), std::string(code));
}

std::string_view shortened(std::string_view text) {
  return whole_characters(text, 64);
}

std::string in_quotes(std::string_view text) {
  const std::string_view start = shortened(text);
  return fmt::format("'{}{}'", start, start.size() < text.size() ? "..." : "");
}

json::object parse_object(std::string_view body) {
  // Each takes many times the memory of its two bytes.
  constexpr ptrdiff_t kValuesMax = 4 << 20;
  if (std::ranges::count(body, ',') > kValuesMax) {
    refuse("", fmt::format("the body has more than {} values", kValuesMax), "too_many_values");
  }
  json::parse_options options;
  options.max_depth = 100;
  json::error_code error;
  json::value value = json::parse(body, error, {}, options);
  if (error)
    refuse("", fmt::format("the body is not valid JSON: {}", error.message()), "invalid_json");
  if (!value.is_object()) refuse("", "the body must be a JSON object", "invalid_json");
  return std::move(value.get_object());
}

bool read_bool(const json::value& value, std::string_view name) {
  if (!value.is_bool()) refuse(name, fmt::format("{} must be true or false", name), "invalid_type");
  return value.get_bool();
}

std::string_view read_text(const json::value& value, std::string_view name) {
  if (!value.is_string()) refuse(name, fmt::format("{} must be a string", name), "invalid_type");
  return value.get_string();
}

int64_t read_integer(const json::value& value, std::string_view name, int64_t least, int64_t most,
                     std::string_view hint) {
  if (!value.is_number() || value.is_double()) {
    refuse(name, fmt::format("{} must be an integer", name), "invalid_type");
  }
  if (!value.is_int64() || value.get_int64() < least || value.get_int64() > most) {
    refuse(name, fmt::format("{} must be from {} to {}{}", name, least, most, hint));
  }
  return value.get_int64();
}

float read_float(const json::value& value, std::string_view name, Bounds bounds) {
  if (!value.is_number()) refuse(name, fmt::format("{} must be a number", name), "invalid_type");
  const auto exact = value.to_number<double>();
  // A double beyond the range of float has no float value: leave it to the check as infinity.
  const bool fits = std::abs(exact) <= std::numeric_limits<float>::max();
  const float number = fits ? static_cast<float>(exact) : std::numeric_limits<float>::infinity();
  const bool above = bounds.above_least ? number > bounds.least : number >= bounds.least;
  if (!above || !(number <= bounds.most)) {
    refuse(name, fmt::format("{} must be {} {} and at most {}", name,
                             bounds.above_least ? "above" : "at least", bounds.least, bounds.most));
  }
  return number;
}

}  // namespace cohort::api
