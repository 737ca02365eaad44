#pragma once

#include <string>
#include <string_view>

namespace cohort::store {

/// The parts of a URL that decide who is being talked to.
struct Origin {
  std::string scheme;  // "http" or "https"
  std::string host;    // lower case
  std::string port;    // never empty

  bool operator==(const Origin&) const = default;
  /// This machine: localhost, 127.0.0.0/8 or [::1].
  bool is_loopback() const;
};

/// The origin of an absolute URL.
///   throws  Error{kInvalidRequest} if it is not http(s), has no host or carries a user name
Origin origin_of(const std::string& url);

/// Resolves a Location header against the URL that answered with it.
std::string resolve_url(const std::string& base, const std::string& reference);

/// Whether content of `endpoint` may be fetched from `to`, which an answer of `from` pointed to:
/// the same origin, anything over https, or, for a hub on this machine over http, this machine.
bool may_redirect(const Origin& endpoint, const Origin& from, const Origin& to);

/// Percent-encodes everything but letters, digits and "-._~"; `keep_slashes` keeps "/" too.
std::string percent_encode(std::string_view text, bool keep_slashes);

}  // namespace cohort::store
