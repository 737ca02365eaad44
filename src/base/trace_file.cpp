#include "base/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/error.h"

namespace cohort {

namespace {

constexpr std::string_view kEnd = "\n]\n";  // a file without it is read as well

std::string in_quotes(std::string_view text) {
  return boost::json::serialize(boost::json::value(text));
}

/// The spans of a record, its whole time first, each with the thread that shows it. Viewers drop a
/// span that overlaps another one of its thread and does not lie within it, as a write does that
/// the next forward does not wait for: such a span goes to a thread beside.
class Threads {
 public:
  explicit Threads(const TraceRecord& record) {
    spans_.push_back({.name = record.route.c_str(), .begin = record.begin, .end = record.end});
    spans_.insert(spans_.end(), record.spans.begin(), record.spans.end());
    std::stable_sort(spans_.begin() + 1, spans_.end(), [](const Span& a, const Span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    for (const Span& span : spans_) threads_.push_back(place(span));
  }

  size_t count() const { return open_.size(); }
  const std::vector<Span>& spans() const { return spans_; }
  /// Of each span, from 0 on.
  const std::vector<size_t>& threads() const { return threads_; }

 private:
  size_t place(const Span& span) {
    for (size_t i = 0;; ++i) {
      if (i == open_.size()) open_.emplace_back();
      auto& ends = open_[i];
      while (!ends.empty() && ends.back() <= span.begin) ends.pop_back();
      if (!ends.empty() && ends.back() < span.end) continue;
      ends.push_back(span.end);
      return i;
    }
  }

  std::vector<Span> spans_;
  std::vector<size_t> threads_;
  std::vector<std::vector<TraceClock::time_point>> open_;  // ends of nested spans, by thread
};

double microseconds(TraceClock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

std::string events_of(const TraceRecord& record, TraceClock::time_point zero,
                      const Threads& threads, uint64_t first_thread) {
  std::string text;
  const auto out = std::back_inserter(text);
  const std::string title = in_quotes(record.route + " " + record.request_id);
  for (size_t i = 0; i < threads.count(); ++i) {
    fmt::format_to(out,
                   ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{},"
                   "\"args\":{{\"name\":{}}}}}",
                   first_thread + i, title);
  }
  const std::string ids = fmt::format("\"request_id\":{},\"trace_id\":\"{}\"",
                                      in_quotes(record.request_id), record.trace_id);
  for (size_t i = 0; i < threads.spans().size(); ++i) {
    const Span& span = threads.spans()[i];
    fmt::format_to(out,
                   ",\n{{\"name\":{},\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},"
                   "\"dur\":{:.3f},\"args\":{{{}",
                   in_quotes(span.name), first_thread + threads.threads()[i],
                   microseconds(span.begin - zero), microseconds(span.end - span.begin), ids);
    if (span.work_id != 0) fmt::format_to(out, ",\"work_id\":{}", span.work_id);
    if (span.batch != 0) fmt::format_to(out, ",\"batch\":{}", span.batch);
    if (span.tokens != 0) fmt::format_to(out, ",\"tokens\":{}", span.tokens);
    if (i == 0) {
      fmt::format_to(out, ",\"outcome\":\"{}\",\"parent_id\":\"{}\",\"dropped_spans\":{}",
                     name_of(record.outcome), record.parent_id, record.dropped_spans);
    }
    text += "}}";
  }
  return text;
}

}  // namespace

TraceFile::TraceFile(const std::string& path, int64_t bytes_max,
                     std::function<void(std::string_view)> log)
    : path_(path),
      bytes_max_(bytes_max),
      log_(std::move(log)),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
  constexpr std::string_view kHead =
      "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"cohort\"}}";
  if (file_ >= 0 && append(kHead)) return;
  const int reason = errno;
  if (file_ >= 0) ::close(file_);
  fail(ErrorKind::kInvalidRequest, "--trace {}: cannot be written: {}", path,
       std::strerror(reason));
}

TraceFile::~TraceFile() {
  if (!on()) return;
  append(kEnd);
  ::close(file_);
}

void TraceFile::write(const TraceRecord& record) {
  if (!on()) return;
  const Threads threads(record);
  const std::string text =
      events_of(record, zero_, threads, next_thread_.fetch_add(threads.count()));
  std::lock_guard lock(mutex_);
  if (!on()) return;
  if (bytes_ + static_cast<int64_t>(text.size() + kEnd.size()) > bytes_max_) {
    append(kEnd);
    end("it has grown to its limit, --trace-limit-mb");
  } else if (!append(text)) {
    end(std::strerror(errno));
  }
}

void TraceFile::end(const char* reason) {
  log_(fmt::format("--trace {}: {}; nothing more is written to it", path_, reason));
  ::close(file_);
  file_ = -1;
}

bool TraceFile::append(std::string_view text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t bytes = ::write(file_, text.data() + written, text.size() - written);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) {
      const int reason = errno;
      if (::ftruncate(file_, bytes_) != 0) errno = 0;  // half an event at the end is passed over
      errno = reason;
      return false;
    }
    written += static_cast<size_t>(bytes);
  }
  bytes_ += static_cast<int64_t>(text.size());
  return true;
}

}  // namespace cohort
