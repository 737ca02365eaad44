#pragma once

#include <sys/types.h>

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "text/frames.h"

namespace cohort::text {

/// A chat template in a worker process (text/template_worker.h). After a worker ended, the next
/// render starts another.
///   thread  any; callers take turns
class TemplateProcess {
 public:
  /// Starts a worker, which compiles the template.
  ///   throws  Error{kInvalidRequest} when the source does not compile, Error{kInternal} when the
  ///           system refuses the process
  ///   cost    that of starting this program, about 10 ms
  explicit TemplateProcess(std::string source);
  TemplateProcess(const TemplateProcess&) = delete;
  TemplateProcess& operator=(const TemplateProcess&) = delete;

  /// What the template writes, given the variables that tk_chat_prepare made. Not to be trusted:
  /// any bytes, though at most 16 MiB.
  ///   throws  Error{kInvalidRequest} with what went wrong in the template or why it was stopped,
  ///           Error{kOverloaded} after kTurnTime of waiting for other callers
  std::string render(std::string_view variables_json);

  const std::string& source() const { return source_; }

 private:
  /// One process and our end of its connection.
  struct Worker {
    Worker();
    ~Worker() { stop(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    int stop();

    int socket = -1;
    pid_t pid = -1;  // -1 = ended and waited for
  };

  void start();
  std::string ask(std::string_view bytes);

  const std::string source_;
  std::timed_mutex mutex_;  // guards worker_
  std::optional<Worker> worker_;
};

}  // namespace cohort::text
