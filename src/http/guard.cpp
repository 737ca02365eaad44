#include "http/guard.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "api/error_body.h"
#include "http/caller.h"

namespace cohort::http {

namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

/// The host of "host", "host:port", "[v6]" or "[v6]:port", in lower case and without brackets.
std::optional<std::string> host_of(std::string_view authority) {
  const bool bracketed = authority.starts_with('[');
  const size_t end = bracketed ? authority.find(']') : authority.find(':');
  if (bracketed && end == std::string_view::npos) return std::nullopt;
  const std::string_view host = bracketed ? authority.substr(1, end - 1) : authority.substr(0, end);
  std::string_view port =
      end == std::string_view::npos ? "" : authority.substr(bracketed ? end + 1 : end);
  if (!port.empty() && port.front() != ':') return std::nullopt;
  if (!port.empty()) port.remove_prefix(1);
  const bool digits = std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
  if (host.empty() || !digits) return std::nullopt;
  return lower(host);
}

bool is_address(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_loopback(const std::string& host) {
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1) return host.starts_with("127.");
  return host == "localhost" || host == "::1";
}

bool contains(const std::vector<std::string>& list, const std::string& wanted) {
  return std::ranges::any_of(list, [&](const auto& entry) { return lower(entry) == wanted; });
}

bool is_json(std::string_view content_type) {
  std::string type = lower(content_type.substr(0, content_type.find(';')));
  while (type.ends_with(' ') || type.ends_with('\t')) type.pop_back();
  return type == "application/json";
}

bool allowed_host(std::string_view authority, const std::vector<std::string>& names) {
  const auto host = host_of(authority);
  return host && (is_loopback(*host) || is_address(*host) || contains(names, *host));
}

bool allowed_origin(std::string_view origin, std::string_view own_authority,
                    const std::vector<std::string>& origins) {
  const std::string page = lower(origin);
  if (contains(origins, page)) return true;
  const size_t scheme_end = page.find("://");
  if (scheme_end == std::string::npos) return false;
  const std::string authority = page.substr(scheme_end + 3);
  const auto host = host_of(authority);
  const bool is_page = page.starts_with("http://") || page.starts_with("https://");
  return is_page && host && (is_loopback(*host) || authority == lower(own_authority));
}

bool needs_key(const RequestHead& head) {
  const std::string_view path = head.target.substr(0, head.target.find('?'));
  return head.method != "OPTIONS" && path != "/health";
}

/// Takes as long whatever they have in common.
bool is_one_of(std::string_view key, const std::vector<std::string>& digests) {
  const std::string digest = digest_of(key);
  bool found = false;
  for (const std::string& known : digests) {
    found |= ::CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
  }
  return found;
}

}  // namespace

std::optional<api::Reply> Guard::refuse(const RequestHead& head) const {
  if (!head.target.starts_with('/')) {
    return api::error_reply(400, "the request target must be a path", "", "bad_target");
  }
  if (head.transfer_encoding && !(head.http_1_1 && lower(*head.transfer_encoding) == "chunked")) {
    return api::error_reply(400, "the only Transfer-Encoding supported is chunked", "",
                            "bad_transfer_encoding");
  }
  if (head.hosts.size() > 1 || (head.hosts.empty() && head.http_1_1)) {
    return api::error_reply(400, "exactly one Host header is required", "", "bad_host");
  }
  const std::string_view host = head.hosts.empty() ? "localhost" : head.hosts.front();
  if (!allowed_host(host, hosts)) {
    return api::error_reply(403,
                            "this Host is not allowed: use localhost or an IP address, or start "
                            "the server with --allowed-host and the name",
                            "", "host_not_allowed");
  }
  if (head.origin && !allowed_origin(*head.origin, host, origins)) {
    return api::error_reply(403,
                            "this Origin is not allowed: start the server with --allowed-origin "
                            "and the page's origin",
                            "", "origin_not_allowed");
  }
  return std::nullopt;
}

std::optional<api::Reply> Guard::refuse_trusted(const RequestHead& head) const {
  if (!key_digests.empty() && needs_key(head) && !is_one_of(head.key, key_digests)) {
    api::Reply reply =
        api::error_reply(401, "an API key is needed: send it as Authorization: Bearer KEY", "",
                         head.key.empty() ? "missing_api_key" : "invalid_api_key");
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  if (head.content_encoding && lower(*head.content_encoding) != "identity") {
    return api::error_reply(415, "a Content-Encoding is not supported: send the body as it is", "",
                            "unsupported_content_encoding");
  }
  if (head.method == "POST" && !(head.content_type && is_json(*head.content_type))) {
    return api::error_reply(415, "the Content-Type must be application/json", "",
                            "unsupported_content_type");
  }
  return std::nullopt;
}

}  // namespace cohort::http
