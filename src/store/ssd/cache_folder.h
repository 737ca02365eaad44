#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::store {

/// An open file, closed with the object.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// A file as the folder lists it.
struct CachedFile {
  std::string name;  // GROUP/FILE
  uint64_t bytes = 0;
  int64_t used_ns = 0;     // when it was last read or else written, since 1970
  bool temporary = false;  // it is being written, or was when its writer died
};

/// A file that is being read: while this lives, nobody removes it.
class FileLease {
 public:
  FileLease(Descriptor fd, uint64_t bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  uint64_t bytes() const { return bytes_; }
  /// Fills `into` with the bytes that come next.
  ///   throws  Error{kInvalidRequest} if the file ends before, kUnavailable if it cannot be read
  void read(std::span<std::byte> into) const;
  /// Makes now the time of its last use, if the folder can be written to.
  void touch() const;

 private:
  Descriptor fd_;
  uint64_t bytes_;
};

/// A file that is being written: under a temporary name, and gone with the object, until it is
/// published.
///   throws  Error{kUnavailable} with the system's reason
class NewFile {
 public:
  NewFile(Descriptor group, std::string group_name, uint64_t bytes);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// The name it will have: GROUP/FILE.
  const std::string& name() const { return name_; }
  void write(std::span<const std::byte> bytes);
  /// Makes the file durable, then visible, then its name durable.
  void publish();

 private:
  /// Makes and locks a temporary file.
  ///   returns  false if another process took it for one whose writer died, before it was locked
  bool make();
  void drain();
  std::string file_name(bool temporary) const;

  Descriptor group_;
  std::string id_;
  std::string name_;
  Descriptor fd_;
  std::vector<std::byte> buffer_;
  bool published_ = false;
};

/// The folder of an SSD cache: a folder for each group of files that serve the same servers, all
/// private to the user. Any number of processes may use it at a time: a file is visible when it is
/// whole, never changes, and is locked (flock) while it is read, written or removed. What is no
/// such file, links and pipes among them, is left alone.
///   thread  any
class CacheFolder {
 public:
  /// Makes the folder if there is none.
  ///   throws  Error{kInvalidRequest} if that fails or it cannot be read
  explicit CacheFolder(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  /// All files, or those of one group.
  ///   throws  Error{kUnavailable} if the folder cannot be read
  std::vector<CachedFile> list(const std::string& group = {}) const;
  ///   throws  Error{kNotFound} if the file is gone or being removed, kInvalidRequest if it is no
  ///           regular file, kUnavailable if it cannot be opened
  FileLease lease(const std::string& name) const;
  /// Begins a file of `bytes` in a group, which is made if there is none.
  NewFile create(const std::string& group, uint64_t bytes) const;
  /// Removes a file unless somebody reads or writes it.
  ///   returns  whether it is gone
  bool remove(const std::string& name) const;
  /// Removes what writers left behind that died.
  void sweep() const;
  /// Removes files, the least recently used first, until all of them take at most `most_bytes`; a
  /// file that is being read or written stays.
  ///   returns  the names of what was removed, and the bytes that are left
  std::pair<std::vector<std::string>, uint64_t> make_room(uint64_t most_bytes) const;

 private:
  std::filesystem::path path_;
  Descriptor root_;
};

/// The name of a group: 32 hex digits.
std::string group_of(std::string_view identity);

}  // namespace cohort::store
