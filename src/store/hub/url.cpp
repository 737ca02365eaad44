#include "store/hub/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/printable.h"

namespace cohort::store {
namespace {

/// Owns a CURLU; throws if the URL cannot be read.
class ParsedUrl {
 public:
  explicit ParsedUrl(const std::string& url) : url_(curl_url(), &curl_url_cleanup) { set(url); }
  void set(const std::string& url) {
    if (url.size() > 8192 || curl_url_set(url_.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
      fail(ErrorKind::kInvalidRequest, "not a URL: {}", printable(url));
    }
  }
  std::string part(CURLUPart what, unsigned flags = 0) const {
    char* text = nullptr;
    if (curl_url_get(url_.get(), what, &text, flags) != CURLUE_OK) return {};
    std::string result = text;
    curl_free(text);
    return result;
  }

 private:
  std::unique_ptr<CURLU, void (*)(CURLU*)> url_;
};

}  // namespace

bool Origin::is_loopback() const {
  const bool is_ipv4 =
      host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "[::1]" || is_ipv4;
}

Origin origin_of(const std::string& url) {
  const ParsedUrl parsed(url);
  Origin origin{.scheme = parsed.part(CURLUPART_SCHEME),
                .host = parsed.part(CURLUPART_HOST),
                .port = parsed.part(CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  std::transform(origin.host.begin(), origin.host.end(), origin.host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const bool is_http = origin.scheme == "http" || origin.scheme == "https";
  const bool has_user = !parsed.part(CURLUPART_USER).empty();
  if (!is_http || origin.host.empty() || has_user) {
    fail(ErrorKind::kInvalidRequest, "{} is not an http(s) address without a user name",
         printable(url));
  }
  return origin;
}

std::string resolve_url(const std::string& base, const std::string& reference) {
  ParsedUrl url(base);
  url.set(reference);
  return url.part(CURLUPART_URL);
}

bool may_redirect(const Origin& endpoint, const Origin& from, const Origin& to) {
  if (to == from || to.scheme == "https") return true;
  return endpoint.scheme == "http" && endpoint.is_loopback() && to.is_loopback();
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~' ||
                          (keep_slashes && c == '/');
    if (is_plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace cohort::store
