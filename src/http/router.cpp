#include "http/router.h"

#include <fmt/format.h>

#include <charconv>
#include <exception>
#include <optional>

#include "api/error_body.h"
#include "base/error.h"

namespace cohort::http {

namespace {

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc() || end != digits + 2) return std::nullopt;
    result += static_cast<char>(byte);
    i += 2;
  }
  return result;
}

/// What the '*' of a route's path matched; empty without one. Absent if the path does not match.
std::optional<std::string> match(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) {
    return pattern == path ? std::optional<std::string>("") : std::nullopt;
  }
  pattern.remove_suffix(1);
  if (!path.starts_with(pattern) || path.size() == pattern.size()) return std::nullopt;
  return percent_decoded(path.substr(pattern.size()));
}

}  // namespace

std::variant<Match, api::Reply> Router::find(std::string_view method,
                                             std::string_view target) const {
  const std::string_view path = target.substr(0, target.find('?'));
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  std::string allowed;
  for (const api::Route& route : routes_) {
    auto rest = match(route.path, path);
    if (!rest) continue;
    if (route.method == wanted) return Match{.route = &route, .path_rest = std::move(*rest)};
    allowed += route.method == "GET" ? "GET, HEAD, " : route.method + ", ";
  }
  if (allowed.empty()) {
    std::string known;
    for (const api::Route& route : routes_)
      known += fmt::format(" {} {},", route.method, route.path);
    if (!known.empty()) known.pop_back();
    return api::error_reply(404, "no such endpoint; there are:" + known, "", "not_found");
  }
  allowed += "OPTIONS";
  api::Reply reply{.status = 204, .body = {}};
  if (method != "OPTIONS") {
    reply = api::error_reply(405, "this endpoint takes only " + allowed, "", "method_not_allowed");
  }
  reply.headers.emplace_back("Allow", allowed);
  return reply;
}

api::Outcome Router::run(const api::Route& route, const api::Call& call,
                         std::string& failure) const {
  try {
    return route.handle(call);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) failure = error.what();
    return api::error_reply(error);
  } catch (const std::exception& error) {
    failure = error.what();
    return api::error_reply(Error(ErrorKind::kInternal, error.what()));
  }
}

}  // namespace cohort::http
