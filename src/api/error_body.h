#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "api/route.h"
#include "base/error.h"

namespace cohort::api {

/// The HTTP status of an error kind.
int status_of(ErrorKind kind);

/// The error body all OpenAI clients read: {"error": {message, type, param, code}}.
///   param, code  empty = null
std::string error_body(int status, std::string_view message, std::string_view param = {},
                       std::string_view code = {});
/// The same for an error of ours; the text of kInternal stays inside, as it may name addresses,
/// paths or other people's data.
std::string error_body(const Error& error);

Reply error_reply(int status, std::string_view message, std::string_view param = {},
                  std::string_view code = {});
/// Overload and unavailability also say when to try again.
Reply error_reply(const Error& error);

}  // namespace cohort::api
