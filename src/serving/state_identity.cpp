#include "serving/state_identity.h"

#include <mlx/version.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "kernels/cpu/kernels.h"
#include "model/checkpoint.h"
#include "serving/model_binding.h"

namespace cohort::serving {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kSampleBytes = 4096;
constexpr size_t kHeadBytes = 16 << 20;  // of a GGUF file: metadata, tokenizer and tensor names

void add(Sha256& hash, std::string_view text) {
  hash.update(std::as_bytes(std::span(text.data(), text.size())));
  hash.update(std::as_bytes(std::span("", 1)));  // ends it
}

/// Beginning, middle and end.
void add_samples(Sha256& hash, Bytes bytes) {
  const size_t size = std::min(kSampleBytes, bytes.size());
  for (const size_t at : {size_t{0}, (bytes.size() - size) / 2, bytes.size() - size}) {
    hash.update(bytes.subspan(at, size));
  }
}

/// When files of weights were changed last: an edit may spare all samples, and set back the time of
/// the last writing, which changes this one.
void add_times(Sha256& hash, const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    std::set<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".safetensors") files.insert(entry.path());
    }
    for (const std::filesystem::path& file : files) add_times(hash, file);
    return;
  }
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    fail(ErrorKind::kNotFound, "{}: {}", path.string(), std::strerror(errno));
  }
#if defined(__APPLE__)
  const timespec changed = status.st_ctimespec;
#else
  const timespec changed = status.st_ctim;
#endif
  add(hash, fmt::format("{} {}.{}", path.filename().string(), changed.tv_sec, changed.tv_nsec));
}

std::string fingerprint(const model::Checkpoint& checkpoint) {
  Sha256 hash;
  add_times(hash, checkpoint.path);
  add(hash, boost::json::serialize(checkpoint.config));
  if (checkpoint.tokenizer_json) hash.update(checkpoint.tokenizer_json->bytes());
  if (checkpoint.gguf) {
    const MappedFile file(checkpoint.path);
    hash.update(file.bytes().first(std::min(kHeadBytes, file.bytes().size())));
  }
  for (const model::TensorView& tensor : checkpoint.tensors) {
    add(hash, tensor.name);
    add(hash, fmt::format("{} {}", static_cast<int>(tensor.type), tensor.bytes.size()));
    add_samples(hash, tensor.bytes);
    checkpoint.drop_pages(tensor);
  }
  return hash.hex();
}

}  // namespace

std::string state_identity(const model::Checkpoint& checkpoint, const BindingOptions& options) {
  std::string layers;
  for (const kv::LayerBits& layer : options.kv.layers) {
    layers += fmt::format(" {}:{}:{}", layer.layer, layer.bits, layer.group);
  }
  return fmt::format("model {}; {}; kv {} group {} start {} layers{}; arithmetic {}; MLX {}; cpu",
                     fingerprint(checkpoint), options.load.exact ? "exact" : "quick",
                     options.kv.name(), options.kv.group, options.kv.start, layers,
                     kernels::cpu::kArithmeticVersion, mlx::core::version());
}

}  // namespace cohort::serving
