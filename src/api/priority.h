#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "engine/request.h"

namespace cohort::api {

// "high", "normal", "low", or an integer as vLLM takes it, of which the lower goes first: below 0
// is high, 0 normal, above 0 low. Both throw Error{kInvalidRequest} naming the field or header.

engine::Priority read_priority(const boost::json::value& value, std::string_view name);
/// The same in the header X-Priority; absent is normal.
engine::Priority read_priority_header(const std::optional<std::string>& text);

}  // namespace cohort::api
