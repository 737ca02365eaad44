#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "base/trace.h"

namespace cohort {

/// Finished traces as a file of trace events, for Perfetto and chrome://tracing. Both read it at
/// any time, also when its end is missing: a request is written at once when it is finished. The
/// first one that would take it beyond its limit ends it, as does a write that fails.
///   thread  any
///   source  "Trace Event Format", JSON array form,
///           https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
class TraceFile {
 public:
  /// Replaces what is there.
  ///   log     told once, when it ends before its time: it is off from then on
  ///   throws  Error{kInvalidRequest} naming the file, if it cannot be opened or written
  TraceFile(const std::string& path, int64_t bytes_max, std::function<void(std::string_view)> log);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Whether it takes more.
  bool on() const { return file_ >= 0; }
  void write(const TraceRecord& record);

 private:
  /// Appends, or leaves the file as it was. False if that failed; errno says why.
  bool append(std::string_view text);
  void end(const char* reason);  // nothing more is written

  const std::string path_;
  const int64_t bytes_max_;
  const std::function<void(std::string_view)> log_;
  const TraceClock::time_point zero_ = TraceClock::now();  // what the file's times count from
  std::atomic<uint64_t> next_thread_ = 1;
  std::mutex mutex_;
  std::atomic<int> file_;  // changes under mutex_; -1 = off
  int64_t bytes_ = 0;      // guarded by mutex_
};

}  // namespace cohort
