#include "store/hub/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/error.h"

namespace cohort::store {
namespace {

using Clock = std::chrono::steady_clock;

struct Exchange {
  HttpResponse response;
  const HttpSink* sink;
  std::chrono::seconds stall;
  Clock::time_point last_arrival = Clock::now();
  curl_off_t arrived_bytes = 0;
};

/// Called about once a second: breaks off when nothing has arrived for too long. (libcurl's own low
/// speed limit averages over several seconds, so it would see a stall late.)
int watch_for_stall(void* user, curl_off_t, curl_off_t arrived_bytes, curl_off_t, curl_off_t) {
  auto& exchange = *static_cast<Exchange*>(user);
  if (arrived_bytes != exchange.arrived_bytes) {
    exchange.arrived_bytes = arrived_bytes;
    exchange.last_arrival = Clock::now();
  }
  if (Clock::now() - exchange.last_arrival < exchange.stall) return 0;
  exchange.response.failure = fmt::format("silent for {} s", exchange.stall.count());
  return 1;
}

size_t take_header(char* data, size_t size, size_t count, void* user) {
  auto& response = static_cast<Exchange*>(user)->response;
  std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    response.headers.clear();  // an interim answer (100) came before this one
    const size_t space = line.find(' ');
    if (space != std::string_view::npos) response.status = std::atol(line.data() + space);
    return size * count;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || response.headers.size() > 200) return size * count;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  while (!value.empty() && (value.back() == '\r' || value.back() == '\n' || value.back() == ' ')) {
    value.remove_suffix(1);
  }
  response.headers[std::move(name)] = std::string(value);
  return size * count;
}

size_t take_body(char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const auto piece = std::as_bytes(std::span(data, size * count));
  return (*exchange.sink)(exchange.response, piece) ? piece.size() : 0;
}

}  // namespace

std::string HttpResponse::header(const std::string& name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? "" : at->second;
}

HttpClient::HttpClient(int stall_s) : stall_s_(stall_s) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  curl_ = curl_easy_init();
  check(curl_ != nullptr, "libcurl starts");
}

HttpClient::~HttpClient() {
  curl_easy_cleanup(curl_);
}

HttpResponse HttpClient::send(const HttpRequest& request, const HttpSink& sink) {
  curl_easy_reset(curl_);
  Exchange exchange{.response = {}, .sink = &sink, .stall = std::chrono::seconds(stall_s_)};
  std::array<char, CURL_ERROR_SIZE> reason{};
  curl_slist* list = nullptr;
  for (const std::string& header : request.headers) list = curl_slist_append(list, header.c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, &curl_slist_free_all);

  curl_easy_setopt(curl_, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl_, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl_, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(curl_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl_, CURLOPT_NOBODY, request.head_only ? 1L : 0L);
  curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl_, CURLOPT_USERAGENT, "cohort");
  curl_easy_setopt(curl_, CURLOPT_CONNECTTIMEOUT, static_cast<long>(stall_s_));
  curl_easy_setopt(curl_, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl_, CURLOPT_XFERINFOFUNCTION, &watch_for_stall);
  curl_easy_setopt(curl_, CURLOPT_XFERINFODATA, &exchange);
  curl_easy_setopt(curl_, CURLOPT_HEADERFUNCTION, &take_header);
  curl_easy_setopt(curl_, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, &take_body);
  curl_easy_setopt(curl_, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(curl_, CURLOPT_ERRORBUFFER, reason.data());

  const CURLcode code = curl_easy_perform(curl_);
  if (code != CURLE_OK && exchange.response.failure.empty()) {
    exchange.response.failure = reason[0] != '\0' ? reason.data() : curl_easy_strerror(code);
  }
  return std::move(exchange.response);
}

}  // namespace cohort::store
