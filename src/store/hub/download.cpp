#include "store/hub/download.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "store/hub/file_lock.h"
#include "store/hub/progress.h"

namespace cohort::store {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 5;
constexpr int kRedirects = 5;
constexpr uint64_t kTextBytesMax = 64ULL << 20;

void pause_before_retry(int failures) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100 << std::min(failures, 6)));
}

bool is_worth_retrying(const HttpResponse& response) {
  return response.status == 0 || response.status == 408 || response.status == 416 ||
         response.status == 429 || response.status >= 500;
}

std::string strip_quotes(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return std::string(etag);
}

std::optional<uint64_t> parse_count(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[noreturn]] void fail_with_status(const std::string& url, const HttpResponse& response) {
  if (response.status == 401 || response.status == 403) {
    fail(ErrorKind::kNotFound,
         "{} answers {}: no such model, or it needs access: accept its terms and set HF_TOKEN", url,
         response.status);
  }
  if (response.status == 404) {
    fail(ErrorKind::kNotFound, "{} answers 404: no such model, revision or file", url);
  }
  fail(ErrorKind::kUnavailable, "{}: {}", url,
       response.status >= 400 ? fmt::format("answers {}", response.status) : response.failure);
}

/// The bytes on disk of a file that is being fetched, and which server vouches for them.
class Partial {
 public:
  enum class Verdict { kGood, kChanged, kTooLong, kDiskFull };

  Partial(fs::path path, const RemoteFile& file, Origin hub, Progress& progress)
      : path_(std::move(path)), file_(file), hub_(std::move(hub)), progress_(progress) {
    stream_.open(path_, std::ios::binary | std::ios::app);
    size_ = stream_ ? fs::file_size(path_) : 0;
    if (!stream_) verdict_ = Verdict::kDiskFull;
    if (size_ > file_.size_bytes) restart();
    vouched_by_ = hub_;
    etag_ = file_.etag;
  }

  uint64_t size() const { return size_; }
  Verdict verdict() const { return stream_ ? verdict_ : Verdict::kDiskFull; }

  void restart() {
    stream_.close();
    stream_.open(path_, std::ios::binary | std::ios::trunc);
    size_ = 0;
  }

  void close() { stream_.close(); }

  void remove() {
    stream_.close();
    fs::remove(path_);
  }

  /// Asks for the rest. A tag is only shown to the server that gave it: others do not know it.
  std::vector<std::string> headers_for(const Origin& host) {
    host_ = host;
    started_ = false;
    std::vector<std::string> headers = {"Accept-Encoding: identity"};
    if (size_ == 0) return headers;
    headers.push_back(fmt::format("Range: bytes={}-", size_));
    if (host == vouched_by_ && etag_.starts_with('"')) headers.push_back("If-Range: " + etag_);
    return headers;
  }

  bool take(const HttpResponse& response, std::span<const std::byte> piece) {
    if (!started_ && !begin(response)) return false;
    started_ = true;
    if (piece.size() > file_.size_bytes - size_) {
      verdict_ = Verdict::kTooLong;
      return false;
    }
    stream_.write(reinterpret_cast<const char*>(piece.data()),
                  static_cast<std::streamsize>(piece.size()));
    if (!stream_) return false;
    size_ += piece.size();
    progress_.update(size_);
    return true;
  }

 private:
  /// Decides what the first bytes of an answer are.
  bool begin(const HttpResponse& response) {
    if (response.status != 200 && response.status != 206) return false;
    const std::string etag = response.header("etag");
    const bool differs = !etag.empty() && !etag_.empty() && host_ == vouched_by_ &&
                         strip_quotes(etag) != strip_quotes(etag_) &&
                         strip_quotes(etag) != file_.tag;
    if (differs && host_ == hub_) {
      verdict_ = Verdict::kChanged;
      return false;
    }
    if (response.status == 200 || differs || !continues_here(response.header("content-range"))) {
      restart();
    }
    vouched_by_ = host_;
    etag_ = etag;
    return response.status == 200 || size_ > 0;
  }

  bool continues_here(const std::string& content_range) const {
    const std::string prefix = fmt::format("bytes {}-", size_);
    const size_t slash = content_range.find('/');
    if (!content_range.starts_with(prefix) || slash == std::string::npos) return false;
    return parse_count(std::string_view(content_range).substr(slash + 1)) == file_.size_bytes;
  }

  const fs::path path_;
  const RemoteFile& file_;
  const Origin hub_;
  Progress& progress_;
  std::ofstream stream_;
  uint64_t size_ = 0;
  Verdict verdict_ = Verdict::kGood;
  Origin vouched_by_;
  std::string etag_;
  Origin host_;
  bool started_ = false;
};

void check_room(const RemoteFile& file, const fs::path& blob, uint64_t have_bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(blob.parent_path(), error);
  const uint64_t need = file.size_bytes - std::min(have_bytes, file.size_bytes);
  if (!error && space.available < need) {
    fail(ErrorKind::kInternal, "{} needs {} more, but {} has only {} left", file.name,
         format_bytes(need), blob.parent_path().string(), format_bytes(space.available));
  }
}

void check_verdict(Partial& partial, const RemoteFile& file, const fs::path& path) {
  if (partial.verdict() == Partial::Verdict::kTooLong) {
    partial.remove();
    fail(ErrorKind::kInternal, "{}: the server sends more than the announced {} bytes", file.name,
         file.size_bytes);
  }
  if (partial.verdict() == Partial::Verdict::kDiskFull) {
    fail(ErrorKind::kInternal, "cannot write {}: is the disk full?", path.string());
  }
}

}  // namespace

HubSession::HubSession(HttpClient& client, const HubOptions& options)
    : client_(client), options_(options), endpoint_(origin_of(options.endpoint)) {}

HttpResponse HubSession::send(const std::string& first_url, Follow follow,
                              const HeadersFor& headers_for, const HttpSink& sink) {
  std::string url = first_url;
  for (int hop = 0; hop <= kRedirects; ++hop) {
    const Origin host = origin_of(url);
    HttpRequest request{.url = url, .head_only = !sink, .headers = headers_for(host)};
    if (host == endpoint_ && !options_.token.empty()) {
      request.headers.push_back("Authorization: Bearer " + options_.token);
    }
    const HttpSink skip_redirects = [&](const HttpResponse& so_far,
                                        std::span<const std::byte> piece) {
      return !so_far.is_redirect() && sink && sink(so_far, piece);
    };
    HttpResponse response = client_.send(request, skip_redirects);
    if (!response.is_redirect()) return response;
    if (follow == Follow::kMetadata && !response.header("x-linked-etag").empty()) return response;

    const std::string next = resolve_url(url, response.header("location"));
    const Origin target = origin_of(next);
    const bool allowed =
        follow == Follow::kContent ? may_redirect(endpoint_, host, target) : target == host;
    if (!allowed) {
      fail(ErrorKind::kInvalidRequest, "{} redirects to {}://{}:{}, which is not allowed", url,
           target.scheme, target.host, target.port);
    }
    url = next;
  }
  fail(ErrorKind::kUnavailable, "{} redirects more than {} times", first_url, kRedirects);
}

/// Sends a small request of the hub's own; without `body` only its headers are asked for.
HttpResponse HubSession::send_patiently(const std::string& url, std::string* body) {
  const HeadersFor headers_for = [](const Origin&) {
    return std::vector<std::string>{"Accept-Encoding: identity"};
  };
  const HttpSink sink = [&](const HttpResponse& response, std::span<const std::byte> piece) {
    body->append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return response.status == 200 && body->size() <= kTextBytesMax;
  };
  for (int failures = 0;; ++failures) {
    if (body) body->clear();
    HttpResponse response = send(url, Follow::kMetadata, headers_for, body ? sink : HttpSink());
    if (response.failure.empty() && response.status < 400) return response;
    if (body && body->size() > kTextBytesMax) {
      fail(ErrorKind::kInvalidRequest, "{} answers more than {}", url, format_bytes(kTextBytesMax));
    }
    const bool is_broken = response.status < 400 && !response.failure.empty();
    const bool again = is_broken || is_worth_retrying(response);
    if (!again || failures + 1 >= kAttempts) fail_with_status(url, response);
    pause_before_retry(failures);
  }
}

std::string HubSession::get_text(const std::string& url) {
  std::string text;
  send_patiently(url, &text);
  return text;
}

RemoteFile HubSession::describe(const std::string& name, const std::string& url) {
  const HttpResponse response = send_patiently(url, nullptr);
  const std::string linked = strip_quotes(response.header("x-linked-etag"));
  const std::string etag = response.header("etag");
  const std::string size = response.header(linked.empty() ? "content-length" : "x-linked-size");
  RemoteFile file{.name = name,
                  .url = url,
                  .etag = etag.empty() ? response.header("x-linked-etag") : etag,
                  .tag = linked.empty() ? strip_quotes(etag) : linked,
                  .sha256 = linked,
                  .size_bytes = parse_count(size).value_or(UINT64_MAX)};
  const bool is_sha256 =
      linked.size() == 64 && linked.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_plain_name(file.tag) || (!linked.empty() && !is_sha256)) {
    fail(ErrorKind::kInvalidRequest, "{}: the hub gives no usable checksum: {}", name,
         printable(file.tag));
  }
  if (file.size_bytes > (1ULL << 44)) {
    fail(ErrorKind::kInvalidRequest, "{}: the hub gives no usable size: {}", name, printable(size));
  }
  return file;
}

bool HubSession::fetch(const RemoteFile& file, const fs::path& blob) {
  const fs::path path = blob.string() + ".incomplete";
  Progress progress(file.name, file.size_bytes);
  Partial partial(path, file, endpoint_, progress);
  const bool resumed = partial.size() > 0;
  check_room(file, blob, partial.size());
  uint64_t furthest = partial.size();
  for (int failures = 0; partial.size() < file.size_bytes;) {
    const HttpResponse response = send(
        file.url, Follow::kContent, [&](const Origin& host) { return partial.headers_for(host); },
        [&](const HttpResponse& so_far, std::span<const std::byte> piece) {
          return partial.take(so_far, piece);
        });
    if (partial.verdict() == Partial::Verdict::kChanged) {
      partial.remove();
      return false;
    }
    check_verdict(partial, file, path);
    if (response.status >= 400 && !is_worth_retrying(response))
      fail_with_status(file.url, response);
    if (response.status == 416) partial.restart();
    if (partial.size() == file.size_bytes) break;
    failures = partial.size() > furthest ? 0 : failures + 1;
    furthest = std::max(furthest, partial.size());
    if (failures >= kAttempts) {
      const std::string reason =
          !response.failure.empty() ? response.failure : fmt::format("status {}", response.status);
      fail(ErrorKind::kUnavailable,
           "{}: broke off {} times without progress at {} of {} ({}); run the command again to "
           "resume",
           file.name, failures, format_bytes(partial.size()), format_bytes(file.size_bytes),
           reason);
    }
    pause_before_retry(failures);
  }
  partial.close();
  check_verdict(partial, file, path);
  if (!file.sha256.empty()) {
    const std::string actual = sha256_of_file(path.string());
    if (actual != file.sha256) {
      partial.remove();
      if (resumed) return false;  // the earlier part may have been damaged: once more, from zero
      fail(ErrorKind::kInternal, "{}: SHA-256 is {}, but the hub announced {}", file.name, actual,
           file.sha256);
    }
  }
  sync_file(path);
  fs::rename(path, blob);
  progress.finish();
  return true;
}

}  // namespace cohort::store
