#include "http/caller.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>

#include "base/random_hex.h"
#include "base/sha256.h"

namespace cohort::http {

bool is_request_id(std::optional<std::string_view> header) {
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  return header && !header->empty() && header->size() <= 128 &&
         std::ranges::all_of(*header, printable);
}

std::string request_id_of(std::optional<std::string_view> header) {
  return is_request_id(header) ? std::string(*header) : "req-" + random_hex(24);
}

std::string session_of(std::optional<std::string_view> session_affinity,
                       std::optional<std::string_view> session_id) {
  const std::string_view first = session_affinity.value_or("");
  return std::string(first.empty() ? session_id.value_or("") : first);
}

std::string_view key_of(std::optional<std::string_view> authorization,
                        std::optional<std::string_view> api_key) {
  constexpr std::string_view kScheme = "bearer ";
  std::string_view key = authorization.value_or("");
  if (!boost::beast::iequals(key.substr(0, kScheme.size()), kScheme)) return api_key.value_or("");
  key.remove_prefix(kScheme.size());
  while (key.starts_with(' ')) key.remove_prefix(1);
  return key.empty() ? api_key.value_or("") : key;
}

std::string digest_of(std::string_view key) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(key)));
  return digest.hex();
}

std::string client_of(std::string_view key) {
  return key.empty() ? "" : digest_of(key).substr(0, 16);
}

}  // namespace cohort::http
