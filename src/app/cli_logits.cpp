#include <fmt/format.h>
#include <mlx/mlx.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>

#include "app/commands.h"
#include "app/loading.h"
#include "base/error.h"
#include "kernels/device.h"
#include "model/checkpoint.h"
#include "model/feed.h"

namespace cohort::app {
namespace {

namespace mx = mlx::core;

/// An f32 matrix in pieces of rows, as the chunks left them.
struct NamedRows {
  std::string name;
  std::vector<mx::array> pieces;  // evaluated
};

/// The file of a command, under exactly the name that was given.
class OutputFile {
 public:
  ///   throws  Error naming the file and the reason, as `write` and `close`
  explicit OutputFile(const std::string& path) : path_(path) {
    errno = 0;
    stream_.open(path, std::ios::binary | std::ios::trunc);
    check_written();
  }
  void write(const char* data, size_t bytes) {
    errno = 0;
    stream_.write(data, static_cast<std::streamsize>(bytes));
    check_written();
  }
  void close() {
    errno = 0;
    stream_.close();
    check_written();
  }

 private:
  void check_written() const {
    if (stream_) return;
    fail(ErrorKind::kInternal, "cannot write {}: {}", path_, std::strerror(errno));
  }
  std::string path_;
  std::ofstream stream_;
};

/// Writes matrices one after the other.
///   source  the safetensors format: header length, JSON header, data
void write_safetensors(OutputFile& file, const std::vector<NamedRows>& matrices) {
  boost::json::object header;
  uint64_t end = 0;
  for (const NamedRows& matrix : matrices) {
    int64_t rows = 0;
    const uint64_t begin = end;
    for (const mx::array& piece : matrix.pieces) {
      check(piece.dtype() == mx::float32 && piece.flags().row_contiguous, "rows are plain f32");
      rows += piece.shape(0);
      end += piece.nbytes();
    }
    header[matrix.name] = {{"dtype", "F32"},
                           {"shape", {rows, matrix.pieces.front().shape(1)}},
                           {"data_offsets", {begin, end}}};
  }
  std::string text = boost::json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file.write(text.data(), text.size());
  for (const NamedRows& matrix : matrices) {
    for (const mx::array& piece : matrix.pieces) {
      file.write(reinterpret_cast<const char*>(piece.data<float>()), piece.nbytes());
    }
  }
  file.close();
}

/// The logits of all positions and, if wanted, the embeddings and the output of every layer.
std::vector<NamedRows> feed(model::Model& model, kernels::cpu::Cpu& cpu,
                            const kv::RowPrecision& precision, std::span<const int32_t> ids,
                            int64_t chunk, bool hidden) {
  kv::KvMemory memory(model.shape().layers, SIZE_MAX, model.block_copy());
  kv::RowCache cache = memory.new_row(precision);
  std::vector<NamedRows> out{{"logits", {}}};
  if (hidden) out.push_back({"embeddings", {}});
  for (size_t i = 0; hidden && i < model.shape().layers.size(); ++i) {
    out.push_back({fmt::format("hidden.{}", i), {}});
  }
  model::feed(cpu, cache, ids, chunk, [&](const model::TokenGroup& group) {
    std::vector<mx::array> layers;
    const mx::array last = model.forward({&group, 1}, hidden ? &layers : nullptr);
    std::vector<int32_t> rows(group.ids.size());
    std::iota(rows.begin(), rows.end(), 0);
    layers.insert(layers.begin(), model.project(last, std::move(rows)));
    mx::eval(layers);
    check(layers.size() == out.size(), "a forward gives one output a layer");
    for (size_t i = 0; i < layers.size(); ++i) out[i].pieces.push_back(layers[i]);
  });
  return out;
}

}  // namespace

int run_logits(const Settings& settings, const LogitsOptions& options) {
  const std::vector<int32_t> ids = read_ids(options.ids_file);
  kernels::use(settings.device);
  kernels::cpu::Cpu cpu(settings.threads);
  const std::string path = find_model(settings).path.string();
  const auto checkpoint = model::Checkpoint::open(path);
  const auto model = model::load_model(checkpoint, load_options(settings), cpu);
  const kv::RowPrecision precision = kv::resolve(kv_scheme(settings, path), model->shape().layers);
  for (int32_t id : ids) {
    if (id >= model->shape().vocab_size) {
      fail(ErrorKind::kInvalidRequest, "{}: token id {} is outside the vocabulary of {}",
           options.ids_file, id, model->shape().vocab_size);
    }
  }
  OutputFile file(options.out_file);  // before the work, in case it cannot be written
  const int64_t chunk =
      std::max<int64_t>(1, options.chunk_tokens.value_or(static_cast<int64_t>(ids.size())));
  write_safetensors(file, feed(*model, cpu, precision, ids, chunk, options.hidden));
  return 0;
}

}  // namespace cohort::app
