#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/route.h"

namespace cohort::http {

/// The head of a request, as far as it decides whether the request is let in.
struct RequestHead {
  std::string_view method;
  std::string_view target;
  bool http_1_1 = true;
  std::vector<std::string_view> hosts = {};  // every Host header
  std::optional<std::string_view> origin = {};
  std::optional<std::string_view> content_type = {};
  std::optional<std::string_view> content_encoding = {};
  std::optional<std::string_view> transfer_encoding = {};
  std::string_view key = {};  // "" = none was sent
};

/// Lets in requests that a local program or a trusted page made.
///   Host    a name that an attacker can point at this machine (DNS rebinding) is refused
///   Origin  a foreign page is refused, whether or not the browser asks before sending
///   Content-Type  must be JSON for POST: nothing that a form can send without asking
///   key     one of those that there are, if there are any, but for /health and OPTIONS, which
///           browsers send without
///   Transfer-Encoding  only chunked: nothing whose end a proxy could see elsewhere
struct Guard {
  std::vector<std::string> hosts;    // names allowed besides loopback names and IP addresses
  std::vector<std::string> origins;  // pages allowed besides loopback ones and the server's own
  std::vector<std::string> key_digests = {};  // caller.h; empty = no key is needed

  /// The reply to a request from elsewhere, or one that is no HTTP: 400, 403.
  std::optional<api::Reply> refuse(const RequestHead& head) const;
  /// The reply to a request from here that is not let in, which a page may read: 401, 415.
  std::optional<api::Reply> refuse_trusted(const RequestHead& head) const;
};

}  // namespace cohort::http
