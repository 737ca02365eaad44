#pragma once

#include <boost/json.hpp>

#include <cstddef>
#include <string_view>

namespace cohort {

/// What a JSON text may look like beyond the grammar (which is strict: valid UTF-8, no comments).
struct JsonRules {
  size_t max_depth = 32;     // nested arrays and objects
  bool unique_keys = false;  // false: of equal keys in one object the last one counts
};

/// Parses a whole JSON text.
///   what    named in errors: a file name, or "request body"
///   throws  Error{kInvalidRequest}: "WHAT: invalid JSON at byte N: reason"
///   thread  any
boost::json::value parse_json(std::string_view text, std::string_view what, JsonRules rules = {});

/// As parse_json, for a text that must be an object.
boost::json::object parse_json_object(std::string_view text, std::string_view what,
                                      JsonRules rules = {});

}  // namespace cohort
