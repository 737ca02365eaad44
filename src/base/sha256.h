#pragma once

#include <cstddef>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace cohort {

/// SHA-256 of bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  /// The digest as 64 lower-case hex digits. Call once, last.
  std::string hex();

 private:
  evp_md_ctx_st* context_;
};

/// SHA-256 of a whole file, as hex.
///   throws  Error{kNotFound} if it cannot be read
std::string sha256_of_file(const std::string& path);

}  // namespace cohort
