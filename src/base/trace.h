#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort {

class TraceFile;
class Tracer;

using TraceClock = std::chrono::steady_clock;

/// One phase of one request; docs/architecture.md lists them.
struct Span {
  const char* name;  // a literal
  TraceClock::time_point begin, end;
  uint64_t work_id = 0;  // of the forward, see next_work_id(); 0 = none
  int32_t batch = 0;     // rows of that forward
  int64_t tokens = 0;    // of this request
};

/// A number that all rows of one forward share, so that their spans can be found. From 1 on.
uint64_t next_work_id();

/// How a request ended: kAbort unless its answer, or an error, was sent to its end.
enum class TraceOutcome { kSuccess, kError, kAbort };
/// "success", "error", "abort".
std::string_view name_of(TraceOutcome outcome);

/// All that is known of a traced request. It holds no text of prompts or answers.
struct TraceRecord {
  std::string trace_id;   // 32 hex digits
  std::string parent_id;  // the caller's span, 16 hex digits; "" = the caller named none
  std::string request_id;
  std::string route;
  TraceClock::time_point begin, end;
  int64_t begin_unix_us = 0;
  TraceOutcome outcome = TraceOutcome::kAbort;
  std::vector<Span> spans;  // in the order that they ended
  uint64_t dropped_spans = 0;
};

/// The phases of one request while it runs. It is finished when its last owner lets go: the
/// connection and the engine each hold it as long as they have something to add.
///   thread  any
class Trace {
 public:
  static constexpr size_t kSpansMax = 4096;

  /// By Tracer::begin.
  Trace(Tracer& tracer, TraceRecord head);
  /// Gives the record to the tracer. A cost of writing its file is borne here.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Allocates nothing. Once there are kSpansMax, the newest span takes the place of the one before
  /// it, so that the end of a long answer stays known.
  void add(const Span& span) noexcept;
  void set_outcome(TraceOutcome outcome) noexcept;

 private:
  Tracer& tracer_;
  std::mutex mutex_;
  TraceRecord record_;  // guarded by mutex_
};

/// Adds a span from its construction to its destruction; does nothing without a trace.
///   trace  outlives it
class TraceSpan {
 public:
  TraceSpan(Trace* trace, const char* name) : trace_(trace), span_{.name = name} {
    if (trace_ != nullptr) span_.begin = TraceClock::now();
  }
  ~TraceSpan() {
    if (trace_ == nullptr) return;
    span_.end = TraceClock::now();
    trace_->add(span_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  /// What becomes known while it lasts.
  Span& span() { return span_; }

 private:
  Trace* const trace_;
  Span span_;
};

/// Runs `work` within a span.
template <class Work>
auto traced(Trace* trace, const char* name, const Work& work) {
  const TraceSpan span(trace, name);
  return work();
}

/// A traceparent header.
struct TraceParent {
  std::string trace_id;   // 32 hex digits, not all 0
  std::string parent_id;  // 16 hex digits, not all 0
};
/// Reads version 00.
///   returns  nothing if any of it is not as it must be
///   source   https://www.w3.org/TR/trace-context
std::optional<TraceParent> parse_traceparent(std::string_view header);

struct TracerOptions {
  std::string file = {};               // written, see TraceFile; "" = none
  int64_t file_bytes_max = INT64_MAX;  // nothing is written beyond
  size_t keep = 0;                     // finished traces that recent() gives
  std::function<void(std::string_view)> log = [](std::string_view) {};  // any thread
};

/// Hands out traces and keeps the finished ones. Outlives them all. Off unless its options keep
/// some or name a file, and that takes more.
///   thread  any
class Tracer {
 public:
  ///   throws  Error{kInvalidRequest} if the file cannot be written
  explicit Tracer(TracerOptions options);
  ~Tracer();

  /// Null when off. A traceparent that is not valid stands for none: the trace gets an id of its
  /// own.
  std::shared_ptr<Trace> begin(std::string_view traceparent, std::string_view request_id,
                               std::string_view route);
  /// How many finished traces are kept at most.
  size_t keeps() const { return keep_; }
  /// The last finished traces, the newest last.
  std::vector<std::shared_ptr<const TraceRecord>> recent() const;

 private:
  friend class Trace;
  void finish(TraceRecord record);

  const size_t keep_;
  const std::unique_ptr<TraceFile> file_;
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<const TraceRecord>> recent_;  // guarded by mutex_
};

}  // namespace cohort
