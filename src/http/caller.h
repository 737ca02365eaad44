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

/// The key that was sent: `Authorization: Bearer KEY`, or else `x-api-key: KEY`; "" without one.
std::string_view key_of(std::optional<std::string_view> authorization,
                        std::optional<std::string_view> api_key);

/// The SHA-256 of a key, as hex: what of it may be kept and compared.
std::string digest_of(std::string_view key);

/// Names who sent a key, 16 hex digits of its digest; "" without one.
std::string client_of(std::string_view key);

}  // namespace cohort::http
