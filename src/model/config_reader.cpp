#include "model/config_reader.h"

#include <cmath>

#include "base/error.h"
#include "base/printable.h"

namespace cohort::model {

namespace json = boost::json;

const json::value* ConfigReader::find(std::string_view key) const {
  const json::value* value = config_.if_contains(key);
  if (value != nullptr && !value->is_null()) return value;
  return defaults_ == nullptr ? nullptr : defaults_->if_contains(key);
}

void ConfigReader::fail_key(std::string_view key, std::string_view wanted) const {
  fail(ErrorKind::kInvalidRequest, "{}: \"{}\" must be {}", file_, key, wanted);
}

int64_t ConfigReader::integer(std::string_view key, Range range,
                              std::optional<int64_t> fallback) const {
  const std::string wanted = fmt::format("an integer from {} to {}", range.low, range.high);
  const json::value* value = find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    fail_key(key, wanted + ", and is missing");
  }
  boost::system::error_code error;
  const auto number = value->to_number<int64_t>(error);
  if (error || number < range.low || number > range.high) fail_key(key, wanted);
  return number;
}

double ConfigReader::positive(std::string_view key, std::optional<double> fallback) const {
  const json::value* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  boost::system::error_code error;
  const double number = value == nullptr ? 0 : value->to_number<double>(error);
  using Float = std::numeric_limits<float>;
  if (error || !(number >= Float::min() && number <= Float::max())) {
    fail_key(key, fmt::format("a number above 0 ({} to {})", Float::min(), Float::max()));
  }
  return number;
}

bool ConfigReader::boolean(std::string_view key, bool fallback) const {
  const json::value* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) fail_key(key, "true or false");
  return value->get_bool();
}

std::string ConfigReader::text(std::string_view key, std::string_view fallback) const {
  const json::value* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) fail_key(key, "a string");
  return std::string(value->get_string());
}

void ConfigReader::only(std::string_view key, std::string_view supported) const {
  const std::string value = text(key, supported);
  if (value == supported) return;
  fail(ErrorKind::kUnsupported, "{}: \"{}\" is {}; supported: {}", file_, key, printable(value),
       supported);
}

const json::object* ConfigReader::object(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) fail_key(key, "an object");
  return &value->get_object();
}

const json::array* ConfigReader::array(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) fail_key(key, "an array");
  return &value->get_array();
}

}  // namespace cohort::model
