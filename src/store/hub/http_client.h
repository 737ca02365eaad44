#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cohort::store {

struct HttpRequest {
  std::string url;
  bool head_only = false;
  std::vector<std::string> headers;  // "Name: value"
};

struct HttpResponse {
  long status = 0;                             // 0 = no answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string failure;                         // why the transfer broke off; empty = complete

  /// A header's value, or "".
  std::string header(const std::string& name) const;
  bool is_redirect() const { return status >= 300 && status < 400 && !header("location").empty(); }
};

/// Takes a piece of the body; false breaks the transfer off. Must not throw: C code is between.
using HttpSink = std::function<bool(const HttpResponse& so_far, std::span<const std::byte> piece)>;

/// One HTTP exchange at a time over libcurl. Follows no redirect, keeps connections, http(s) only.
///   thread  any, one at a time
class HttpClient {
 public:
  /// A connection that stays silent for `stall_s` seconds breaks off.
  explicit HttpClient(int stall_s);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Sends the request and feeds the body to `sink`. A transport failure is a value: retries are
  /// the caller's business.
  HttpResponse send(const HttpRequest& request, const HttpSink& sink);

 private:
  void* curl_;  // CURL
  int stall_s_;
};

}  // namespace cohort::store
