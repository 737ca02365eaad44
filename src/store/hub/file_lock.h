#pragma once

#include <filesystem>

namespace cohort::store {

/// Holds an advisory lock (flock) on a file for as long as it lives; waits for other processes.
///   throws  Error{kInternal} if the file cannot be made
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

/// Writes what the system still buffers of a file to the disk.
void sync_file(const std::filesystem::path& path);

}  // namespace cohort::store
