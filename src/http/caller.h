#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cohort::http {

// What a head says of who asks. A header is absent, or its value; one that was sent twice is empty.

/// Whether a caller may name its request like that: with 1 to 128 printable ASCII characters.
bool is_request_id(std::optional<std::string_view> header);

/// The id that the caller gave its request, or else a fresh one.
std::string request_id_of(std::optional<std::string_view> header);

/// The conversation of a request: the first of the two that says one; "" = none does.
std::string session_of(std::optional<std::string_view> session_affinity,
                       std::optional<std::string_view> session_id);

/// The first 16 hex digits of the SHA-256 of the key that was sent, the first of the two that is
/// there; "" without one. The key itself stays here.
std::string client_of(std::optional<std::string_view> authorization,
                      std::optional<std::string_view> api_key);

}  // namespace cohort::http
