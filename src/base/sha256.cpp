#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace cohort {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check(context_ && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1,
        "SHA-256 is available");
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(context_);
}

void Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1, "SHA-256 takes bytes");
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  check(EVP_DigestFinal_ex(context_, digest.data(), nullptr) == 1, "SHA-256 ends once");
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

std::string sha256_of_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail(ErrorKind::kNotFound, "cannot read {}", path);
  Sha256 sha256;
  std::vector<char> buffer(1 << 20);
  while (stream) {
    stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    sha256.update(std::as_bytes(std::span(buffer.data(), static_cast<size_t>(stream.gcount()))));
  }
  if (!stream.eof()) fail(ErrorKind::kInternal, "reading {} failed", path);
  return sha256.hex();
}

}  // namespace cohort
