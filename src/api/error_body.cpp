#include "api/error_body.h"

#include <boost/json.hpp>

namespace cohort::api {

namespace json = boost::json;

namespace {

constexpr std::string_view kInternalMessage = "internal error";

std::string_view type_of(int status) {
  if (status == 401 || status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

json::value text_or_null(std::string_view text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

std::string_view message_of(const Error& error) {
  return error.kind() == ErrorKind::kInternal ? kInternalMessage : error.what();
}

}  // namespace

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidRequest:
    case ErrorKind::kUnsupported:
      return 400;
    case ErrorKind::kNotFound:
      return 404;
    case ErrorKind::kTooLarge:
      return 413;
    case ErrorKind::kOverloaded:
      return 429;
    case ErrorKind::kUnavailable:
      return 503;
    case ErrorKind::kModelFailure:
    case ErrorKind::kInternal:
      break;
  }
  return 500;
}

std::string error_body(int status, std::string_view message, std::string_view param,
                       std::string_view code) {
  return json::serialize(json::object{{"error", json::object{{"message", message},
                                                             {"type", type_of(status)},
                                                             {"param", text_or_null(param)},
                                                             {"code", text_or_null(code)}}}});
}

std::string error_body(const Error& error) {
  return error_body(status_of(error.kind()), message_of(error), error.param(), error.code());
}

Reply error_reply(int status, std::string_view message, std::string_view param,
                  std::string_view code) {
  return {.status = status, .body = error_body(status, message, param, code)};
}

Reply error_reply(const Error& error) {
  Reply reply{.status = status_of(error.kind()), .body = error_body(error)};
  if (reply.status == 429 || reply.status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

}  // namespace cohort::api
