#include "api/priority.h"

#include <fmt/format.h>

#include <charconv>

#include "api/json_input.h"

namespace cohort::api {

namespace {

[[noreturn]] void refuse_priority(std::string_view name, const char* code) {
  refuse(name,
         fmt::format("{} must be 'high', 'normal', 'low' or an integer: below 0 is high, 0 normal, "
                     "above 0 low",
                     name),
         code);
}

engine::Priority numbered(int64_t number) {
  if (number == 0) return engine::Priority::kNormal;
  return number < 0 ? engine::Priority::kHigh : engine::Priority::kLow;
}

std::optional<engine::Priority> named(std::string_view text) {
  if (text == "high") return engine::Priority::kHigh;
  if (text == "normal") return engine::Priority::kNormal;
  if (text == "low") return engine::Priority::kLow;
  return std::nullopt;
}

}  // namespace

engine::Priority read_priority(const boost::json::value& value, std::string_view name) {
  if (value.is_int64()) return numbered(value.get_int64());
  if (value.is_uint64()) return engine::Priority::kLow;
  if (!value.is_string()) refuse_priority(name, "invalid_type");
  const auto priority = named(value.get_string());
  if (!priority) refuse_priority(name, "invalid_value");
  return *priority;
}

engine::Priority read_priority_header(const std::optional<std::string>& text) {
  if (!text) return engine::Priority::kNormal;
  if (const auto priority = named(*text)) return *priority;
  int64_t number = 0;
  const char* last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, number);
  if (error != std::errc() || end != last) refuse_priority("X-Priority", "invalid_value");
  return numbered(number);
}

}  // namespace cohort::api
