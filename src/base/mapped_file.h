#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace cohort {

/// A read-only memory-mapped file. Move-only; the bytes live as long as the object.
///   throws  Error{kNotFound, kInvalidRequest} naming the path and the reason
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  /// Gives the whole pages inside `part`, which lies in the file, back to the system; a later read
  /// fetches them from the file again.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace cohort
