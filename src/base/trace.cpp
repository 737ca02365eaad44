#include "base/trace.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>

#include "base/random_hex.h"
#include "base/trace_file.h"

namespace cohort {

namespace {

int64_t unix_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool is_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text) {
  return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::string_view name_of(TraceOutcome outcome) {
  switch (outcome) {
    case TraceOutcome::kSuccess:
      return "success";
    case TraceOutcome::kError:
      return "error";
    case TraceOutcome::kAbort:
      break;
  }
  return "abort";
}

uint64_t next_work_id() {
  static std::atomic<uint64_t> next = 1;
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::optional<TraceParent> parse_traceparent(std::string_view header) {
  constexpr size_t kLength = 55;  // 00-TRACE-PARENT-FLAGS
  if (header.size() != kLength || !header.starts_with("00-")) return std::nullopt;
  if (header[35] != '-' || header[52] != '-') return std::nullopt;
  const std::string_view trace = header.substr(3, 32), parent = header.substr(36, 16);
  if (!is_id(trace) || !is_id(parent) || !is_hex(header.substr(53))) return std::nullopt;
  return TraceParent{std::string(trace), std::string(parent)};
}

Trace::Trace(Tracer& tracer, TraceRecord head) : tracer_(tracer), record_(std::move(head)) {
  record_.spans.reserve(kSpansMax);  // address space only, until they come
}

Trace::~Trace() {
  record_.end = TraceClock::now();
  try {
    record_.spans.shrink_to_fit();
    tracer_.finish(std::move(record_));
  } catch (const std::exception& failure) {  // the request is well without its trace
    std::fprintf(stderr, "cohort: a trace is lost: %s\n", failure.what());
  }
}

void Trace::add(const Span& span) noexcept {
  std::lock_guard lock(mutex_);
  if (record_.spans.size() < kSpansMax) {
    record_.spans.push_back(span);
  } else {
    record_.spans.back() = span;
    ++record_.dropped_spans;
  }
}

void Trace::set_outcome(TraceOutcome outcome) noexcept {
  std::lock_guard lock(mutex_);
  record_.outcome = outcome;
}

Tracer::Tracer(TracerOptions options)
    : keep_(options.keep),
      file_(options.file.empty() ? nullptr
                                 : std::make_unique<TraceFile>(options.file, options.file_bytes_max,
                                                               std::move(options.log))) {}

Tracer::~Tracer() = default;

std::shared_ptr<Trace> Tracer::begin(std::string_view traceparent, std::string_view request_id,
                                     std::string_view route) {
  if (keep_ == 0 && (file_ == nullptr || !file_->on())) return nullptr;
  TraceParent parent =
      parse_traceparent(traceparent).value_or(TraceParent{.trace_id = random_hex(32)});
  return std::make_shared<Trace>(*this, TraceRecord{.trace_id = std::move(parent.trace_id),
                                                    .parent_id = std::move(parent.parent_id),
                                                    .request_id = std::string(request_id),
                                                    .route = std::string(route),
                                                    .begin = TraceClock::now(),
                                                    .begin_unix_us = unix_us()});
}

std::vector<std::shared_ptr<const TraceRecord>> Tracer::recent() const {
  std::lock_guard lock(mutex_);
  return {recent_.begin(), recent_.end()};
}

void Tracer::finish(TraceRecord record) {
  if (file_) file_->write(record);
  if (keep_ == 0) return;
  auto kept = std::make_shared<const TraceRecord>(std::move(record));
  std::lock_guard lock(mutex_);
  recent_.push_back(std::move(kept));
  if (recent_.size() > keep_) recent_.pop_front();
}

}  // namespace cohort
