#include "text/template_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>
#include <vector>

#include "text/template_worker.h"
#include "text/textkit_calls.h"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace cohort::text {
namespace {

constexpr uint64_t kAnswerBytesMax = 16 << 20;  // textkit lets a template write 8 MiB
constexpr int kNoProgram = 127;                 // exit status: a library of ours is gone

std::string own_program() {
#ifdef __APPLE__
  std::string path(4096, '\0');
  auto bytes = static_cast<uint32_t>(path.size());
  check(::_NSGetExecutablePath(path.data(), &bytes) == 0, "the program's path is short");
  return path.c_str();
#else
  return "/proc/self/exe";  // finds the file even after it was replaced
#endif
}

void check_system(int error) {
  if (error != 0) {
    fail(ErrorKind::kInternal, "cannot start a process for the chat template: {}",
         std::generic_category().message(error));
  }
}

/// The two ends of a connection.
struct Sockets {
  Sockets() {
#ifdef SOCK_CLOEXEC
    check_system(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno);
#else
    check_system(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 ? 0 : errno);
    const int on = 1;
    for (const int end : ends) {
      ::fcntl(end, F_SETFD, FD_CLOEXEC);
      ::setsockopt(end, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
    }
#endif
  }
  ~Sockets() {
    for (const int end : ends) {
      if (end >= 0) ::close(end);
    }
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  int ends[2] = {-1, -1};
};

/// Whether a worker needs a variable: what the system's libraries read to load the program, to know
/// the time and to report what sanitizers find. The rest is not its business: it may hold secrets.
bool is_for_worker(std::string_view name) {
  return name == "LD_LIBRARY_PATH" || name == "DYLD_LIBRARY_PATH" || name == "TZ" ||
         name == "LANG" || name.starts_with("LC_") || name.ends_with("SAN_OPTIONS");
}

/// The entries of our environment that a worker gets, ended by a null pointer; valid as ours is.
std::vector<char*> worker_environment() {
  std::vector<char*> entries;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    if (is_for_worker(entry.substr(0, entry.find('=')))) entries.push_back(*at);
  }
  entries.push_back(nullptr);
  return entries;
}

/// How a worker comes to be: one end of the socket as standard input, and no other file of ours;
/// few of our variables; no signal blocked or ignored; outside our process group, so that Ctrl-C is
/// for us alone.
class SpawnPlan {
 public:
  explicit SpawnPlan(int socket) {
    ::posix_spawn_file_actions_init(&files_);
    ::posix_spawnattr_init(&attributes_);
    short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP;
    ::posix_spawn_file_actions_adddup2(&files_, socket, STDIN_FILENO);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      ::posix_spawn_file_actions_addopen(&files_, fd, "/dev/null", O_WRONLY, 0);
    }
#ifdef __APPLE__
    flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#else
    ::posix_spawn_file_actions_addclosefrom_np(&files_, STDERR_FILENO + 1);
#endif
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, flags);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&files_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  pid_t start() const {
    const std::string program = own_program();
    const std::string name = "cohort";
    const std::string argument = kTemplateWorkerArgument;
    char* const argv[] = {const_cast<char*>(name.c_str()), const_cast<char*>(argument.c_str()),
                          nullptr};
    const std::vector<char*> environment = worker_environment();
    pid_t pid = -1;
    check_system(
        ::posix_spawn(&pid, program.c_str(), &files_, &attributes_, argv, environment.data()));
    return pid;
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

[[noreturn]] void fail_as_ended(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoProgram) {
    fail(ErrorKind::kInternal,
         "cannot start a process for the chat template: the program's files have moved");
  }
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (signal == SIGABRT) {  // the end of every allocation that fails
    fail(ErrorKind::kInvalidRequest, "the chat template was stopped: it needs more than {} MiB",
         kTemplateMemoryBytes >> 20);
  }
  if (signal == SIGKILL) {
    fail(ErrorKind::kInvalidRequest,
         "the chat template was stopped: the system killed its process");
  }
  fail(ErrorKind::kInvalidRequest, "the chat template was stopped: it crashed");
}

}  // namespace

TemplateProcess::TemplateProcess(std::string source) : source_(std::move(source)) {
  check(can_start_template_worker(), "main() begins with serve_as_template_worker()");
  start();
}

std::string TemplateProcess::render(std::string_view variables_json) {
  // The clock that ThreadSanitizer's mutexes know; a jump of it costs nobody more than a turn.
  const std::unique_lock lock(mutex_, std::chrono::system_clock::now() + kTurnTime);
  if (!lock) {
    fail(ErrorKind::kOverloaded, "the chat template is busy with other requests: try again later");
  }
  if (worker_ && !is_quiet(worker_->socket)) worker_.reset();  // something ended it since
  if (!worker_) start();
  return ask(variables_json);
}

void TemplateProcess::start() {
  worker_.emplace();
  ask(source_);
}

/// Sends a frame and waits for the answer; stops a worker that gives none.
std::string TemplateProcess::ask(std::string_view bytes) {
  const Deadline deadline = std::chrono::steady_clock::now() + kRenderTime;
  Frame answer;
  Transfer transfer = send_frame(worker_->socket, 0, bytes, deadline);
  if (transfer == Transfer::kDone) {
    transfer = receive_frame(worker_->socket, answer, kAnswerBytesMax, deadline);
  }
  if (transfer == Transfer::kDone) {
    if (answer.status != 0) throw_failure(answer.status, answer.bytes);
    return std::move(answer.bytes);
  }
  const int status = worker_->stop();
  worker_.reset();
  if (transfer == Transfer::kEnded) fail_as_ended(status);
  if (transfer == Transfer::kTooLong) {
    fail(ErrorKind::kInvalidRequest,
         "the chat template was stopped: its process answered with more than {} MiB",
         kAnswerBytesMax >> 20);
  }
  fail(ErrorKind::kInvalidRequest, "the chat template was stopped: it took longer than {} s",
       kRenderTime.count());
}

TemplateProcess::Worker::Worker() {
  Sockets sockets;
  pid = SpawnPlan(sockets.ends[1]).start();
  socket = std::exchange(sockets.ends[0], -1);
}

/// Kills the process unless it has ended, and leaves no zombie.
///   returns  how it ended, as waitpid says it
int TemplateProcess::Worker::stop() {
  if (pid < 0) return 0;
  ::close(socket);
  int status = 0;
  // What has ended is not killed: if SIGCHLD is ignored, its number may be another process's.
  if (::waitpid(pid, &status, WNOHANG) == 0) {
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  pid = -1;
  return status;
}

}  // namespace cohort::text
