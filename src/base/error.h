#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace cohort {

/// Whose fault an error is; each kind maps to one HTTP status (api/error_body).
enum class ErrorKind {
  kInvalidRequest,  // 400: the caller's input is wrong
  kUnsupported,     // 400: understood, but this model or build cannot do it
  kNotFound,        // 404
  kTooLarge,        // 413: more than this server can ever hold
  kOverloaded,      // 429: try again later
  kUnavailable,     // 503: loading, draining or dead
  kModelFailure,    // 500: the model's fault: it loads, but gives no answers
  kInternal,        // 500: our fault
};

/// The one exception type of Cohort. `param` names the request field at fault, if there is one;
/// `code` is a machine-readable reason for APIs ("context_length_exceeded"), mostly empty.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::string param = {}, std::string code = {})
      : std::runtime_error(message),
        kind_(kind),
        param_(std::move(param)),
        code_(std::move(code)) {}
  ErrorKind kind() const { return kind_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  ErrorKind kind_;
  std::string param_;
  std::string code_;
};

/// What is told of a failure: whose fault it is stays, what is no Error is ours.
inline Error as_error(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr ? *error : Error(ErrorKind::kInternal, failure.what());
}

/// Whose fault a failure is; ours if it is no Error.
inline ErrorKind kind_of(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr ? error->kind() : ErrorKind::kInternal;
}

/// Throws Error{kind} with a formatted message: what is wrong and what would have worked.
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error{kInternal} when something that must hold does not.
inline void check(bool holds, const char* what_must_hold) {
  if (!holds) throw Error(ErrorKind::kInternal, fmt::format("internal: {}", what_must_hold));
}

}  // namespace cohort
