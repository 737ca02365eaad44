#include "store/ssd/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/random_hex.h"
#include "base/sha256.h"

namespace cohort::store {
namespace {

constexpr size_t kNameDigits = 32;
constexpr std::string_view kWhole = ".kv", kTemporary = ".tmp";
constexpr size_t kBufferBytes = size_t{1} << 20;

[[noreturn]] void fail_with(int error, const char* what) {
  fail(ErrorKind::kUnavailable, "cannot {}: {}", what, std::strerror(error));
}

bool is_hex(std::string_view text) {
  return text.size() == kNameDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_file(std::string_view name, std::string_view ending) {
  return name.ends_with(ending) && is_hex(name.substr(0, name.size() - ending.size()));
}

timespec now() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);  // finer than the kernel's own stamps
  return time;
}

void set_used_now(int fd) {
  const timespec times[2] = {now(), now()};
  ::futimens(fd, times);
}

Descriptor open_folder(int at, const char* name) {
  return Descriptor(::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// Names in a folder.
std::vector<std::string> names_in(int folder) {
  const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(own < 0 ? nullptr : ::fdopendir(own),
                                                   ::closedir);
  if (stream == nullptr) fail_with(errno, "read the folder");
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream.get())) names.emplace_back(entry->d_name);
  std::ranges::sort(names);
  return names;
}

void list_group(int root, const std::string& group, std::vector<CachedFile>& files) {
  const Descriptor folder = open_folder(root, group.c_str());
  if (folder.get() < 0) return;
  for (const std::string& name : names_in(folder.get())) {
    const bool temporary = is_file(name, kTemporary);
    if (!temporary && !is_file(name, kWhole)) continue;
    struct stat status {};
    if (::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    const int64_t used_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    files.push_back(
        {group + "/" + name, static_cast<uint64_t>(status.st_size), used_ns, temporary});
  }
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

std::string group_of(std::string_view identity) {
  Sha256 sha256;
  sha256.update(std::as_bytes(std::span(identity)));
  return sha256.hex().substr(0, kNameDigits);
}

void FileLease::read(std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::read(fd_.get(), into.data(), into.size());
    if (got == 0) fail(ErrorKind::kInvalidRequest, "a file ends early");
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with(errno, "read a file");
    into = into.subspan(static_cast<size_t>(got));
  }
}

void FileLease::touch() const {
  set_used_now(fd_.get());
}

NewFile::NewFile(Descriptor group, std::string group_name, uint64_t bytes)
    : group_(std::move(group)) {
  while (!make()) {
  }
  name_ = std::move(group_name) + "/" + file_name(false);
  buffer_.reserve(kBufferBytes);
  // A full disk is better known before gigabytes are written; not all file systems can tell.
  if (::fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)) == 0 || errno == EOPNOTSUPP) return;
  const int error = errno;
  ::unlinkat(group_.get(), file_name(true).c_str(), 0);
  fail_with(error, "write a file");
}

bool NewFile::make() {
  id_ = random_hex(kNameDigits);
  fd_ = Descriptor(::openat(group_.get(), file_name(true).c_str(),
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd_.get() < 0) fail_with(errno, "make a file");
  struct stat status {};
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
    return ::fstat(fd_.get(), &status) == 0 && status.st_nlink > 0;
  }
  if (errno == EWOULDBLOCK) return false;
  const int error = errno;
  ::unlinkat(group_.get(), file_name(true).c_str(), 0);
  fail_with(error, "lock a file");
}

NewFile::~NewFile() {
  if (!published_) ::unlinkat(group_.get(), file_name(true).c_str(), 0);
}

std::string NewFile::file_name(bool temporary) const {
  return id_ + std::string(temporary ? kTemporary : kWhole);
}

void NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kBufferBytes - buffer_.size()));
    buffer_.insert(buffer_.end(), piece.begin(), piece.end());
    bytes = bytes.subspan(piece.size());
    if (buffer_.size() == kBufferBytes) drain();
  }
}

void NewFile::drain() {
  for (std::span<const std::byte> left = buffer_; !left.empty();) {
    const ssize_t written = ::write(fd_.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with(errno, "write a file");
    left = left.subspan(static_cast<size_t>(written));
  }
  buffer_.clear();
}

void NewFile::publish() {
  drain();
  set_used_now(fd_.get());
  if (::fsync(fd_.get()) != 0) fail_with(errno, "write a file");
  if (::renameat(group_.get(), file_name(true).c_str(), group_.get(), file_name(false).c_str()) !=
      0) {
    fail_with(errno, "name a file");
  }
  published_ = true;
  if (::fsync(group_.get()) != 0) fail_with(errno, "write the folder");
}

CacheFolder::CacheFolder(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    fail(ErrorKind::kInvalidRequest, "cannot make the SSD cache {}: {}", path.string(),
         std::strerror(errno));
  }
  root_ = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (root_.get() < 0) {
    fail(ErrorKind::kInvalidRequest, "cannot open the SSD cache {}: {}", path.string(),
         std::strerror(errno));
  }
}

std::vector<CachedFile> CacheFolder::list(const std::string& group) const {
  std::vector<CachedFile> files;
  if (!group.empty()) {
    list_group(root_.get(), group, files);
    return files;
  }
  for (const std::string& name : names_in(root_.get())) {
    if (is_hex(name)) list_group(root_.get(), name, files);
  }
  return files;
}

FileLease CacheFolder::lease(const std::string& name) const {
  Descriptor fd(
      ::openat(root_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0 && errno == ENOENT) fail(ErrorKind::kNotFound, "a file is gone");
  if (fd.get() < 0 && errno == ELOOP) fail(ErrorKind::kInvalidRequest, "a file is a link");
  if (fd.get() < 0) fail_with(errno, "open a file");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    fail(ErrorKind::kInvalidRequest, "a file is no regular one");
  }
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) != 0) {
    fail(ErrorKind::kNotFound, "a file is being removed");
  }
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return {std::move(fd), static_cast<uint64_t>(status.st_size)};
}

NewFile CacheFolder::create(const std::string& group, uint64_t bytes) const {
  Descriptor folder = open_folder(root_.get(), group.c_str());
  if (folder.get() < 0 && errno == ENOENT) {
    if (::mkdirat(root_.get(), group.c_str(), 0700) == 0) ::fsync(root_.get());
    folder = open_folder(root_.get(), group.c_str());
  }
  if (folder.get() < 0) fail_with(errno, "make a file");
  return {std::move(folder), group, bytes};
}

bool CacheFolder::remove(const std::string& name) const {
  const Descriptor fd(
      ::openat(root_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) return errno == ENOENT;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
  return ::unlinkat(root_.get(), name.c_str(), 0) == 0 || errno == ENOENT;
}

void CacheFolder::sweep() const {
  for (const CachedFile& file : list()) {
    if (file.temporary) remove(file.name);
  }
}

std::pair<std::vector<std::string>, uint64_t> CacheFolder::make_room(uint64_t most_bytes) const {
  std::vector<CachedFile> files = list();
  std::ranges::sort(files, {}, [](const CachedFile& f) { return std::pair(f.used_ns, f.name); });
  uint64_t bytes = 0;
  for (const CachedFile& file : files) bytes += file.bytes;
  std::vector<std::string> removed;
  for (const CachedFile& file : files) {
    if (bytes <= most_bytes) break;
    if (file.temporary || !remove(file.name)) continue;
    bytes -= file.bytes;
    removed.push_back(file.name);
  }
  return {std::move(removed), bytes};
}

}  // namespace cohort::store
