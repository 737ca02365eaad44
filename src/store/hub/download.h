#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "store/hub/http_client.h"
#include "store/hub/hub.h"
#include "store/hub/url.h"

namespace cohort::store {

/// What the hub says of a file before it is fetched.
struct RemoteFile {
  std::string name;    // for messages
  std::string url;     // at the hub, pinned to a commit
  std::string etag;    // as sent, for If-Range
  std::string tag;     // without quotes: names the blob
  std::string sha256;  // empty for files that are not in large-file storage
  uint64_t size_bytes = 0;
};

/// The hub's side of the conversation: requests that carry the token to the endpoint only and
/// follow only redirects that may_redirect() allows.
class HubSession {
 public:
  HubSession(HttpClient& client, const HubOptions& options);

  /// A small JSON answer of the hub itself.
  ///   throws  Error{kNotFound, kInvalidRequest, kUnavailable, kInternal}
  std::string get_text(const std::string& url);

  /// Size and checksum of a file, from the hub itself.
  ///   throws  as get_text; Error{kInvalidRequest} if the hub names no usable size or checksum
  RemoteFile describe(const std::string& name, const std::string& url);

  /// Fetches a file to `blob` through `blob`.incomplete, resuming what is there.
  ///   returns  false if the file changed on the server meanwhile: describe it anew
  ///   throws   Error{kUnavailable} after repeated failures without progress (what came is kept),
  ///            Error{kInternal} if size or checksum are wrong (nothing is kept) or the disk is
  ///            full
  bool fetch(const RemoteFile& file, const std::filesystem::path& blob);

 private:
  enum class Follow { kMetadata, kContent };
  using HeadersFor = std::function<std::vector<std::string>(const Origin& host)>;
  HttpResponse send(const std::string& url, Follow follow, const HeadersFor& headers_for,
                    const HttpSink& sink);
  HttpResponse send_patiently(const std::string& url, std::string* body);

  HttpClient& client_;
  const HubOptions& options_;
  const Origin endpoint_;
};

}  // namespace cohort::store
