#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace cohort::api {

/// Throws Error{kInvalidRequest} about the field `param`.
[[noreturn]] void refuse(std::string_view param, const std::string& message,
                         std::string_view code = "invalid_value");
/// Throws Error{kUnsupported} about the field `param`: well formed, but this server cannot do it.
[[noreturn]] void refuse_unsupported(std::string_view param, const std::string& message,
                                     std::string_view code = "unsupported_value");

/// The beginning of what a client sent: at most 64 bytes, cut between characters.
std::string_view shortened(std::string_view text);
/// The same for a message, in quotes.
std::string in_quotes(std::string_view text);

/// Parses a request body.
///   returns  its object; of two equal keys the last one counts
///   throws   kInvalidRequest: not JSON, not UTF-8, not an object, nested deeper than 100, or with
///            more than four million values
boost::json::object parse_object(std::string_view body);

// Readers of one value. `name` is the field's path ("messages[0].role") and becomes the error's
// param. All throw Error{kInvalidRequest} naming what would have worked; none coerces: "5", true
// and 5.0 are not the integer 5.

bool read_bool(const boost::json::value& value, std::string_view name);
std::string_view read_text(const boost::json::value& value, std::string_view name);
///   hint  ends the message about an integer that is out of range
int64_t read_integer(const boost::json::value& value, std::string_view name, int64_t least,
                     int64_t most = std::numeric_limits<int64_t>::max(),
                     std::string_view hint = "");

/// The bounds of a float field, after rounding to float.
struct Bounds {
  float least;
  float most;
  bool above_least = false;  // `least` itself is excluded
};
float read_float(const boost::json::value& value, std::string_view name, Bounds bounds);

}  // namespace cohort::api
