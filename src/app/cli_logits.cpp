#include <fmt/format.h>
#include <mlx/mlx.h>

#include <algorithm>

#include "app/commands.h"
#include "app/loading.h"
#include "base/error.h"
#include "model/checkpoint.h"

namespace cohort::app {

namespace mx = mlx::core;

int run_logits(const Settings& settings, const LogitsOptions& options) {
  const std::vector<int32_t> ids = read_ids(options.ids_file);
  mx::set_default_device(mx::Device::cpu);
  kernels::cpu::Cpu cpu(settings.threads);
  const auto checkpoint = model::Checkpoint::open(find_model(settings).path.string());
  const auto model = model::load_model(checkpoint, load_options(settings), cpu);
  for (int32_t id : ids) {
    if (id >= model->shape().vocab_size) {
      fail(ErrorKind::kInvalidRequest, "{}: token id {} is outside the vocabulary of {}",
           options.ids_file, id, model->shape().vocab_size);
    }
  }
  kv::KvMemory memory(model->shape().layers);
  kv::RowCache cache = memory.new_row();
  const auto chunk = static_cast<size_t>(
      std::max<int64_t>(1, options.chunk_tokens.value_or(static_cast<int64_t>(ids.size()))));
  std::vector<mx::array> logits;
  std::vector<std::vector<mx::array>> hidden;  // [layer][chunk]
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const size_t count = std::min(chunk, ids.size() - at);
    const model::TokenGroup group{std::span(ids).subspan(at, count), cache};
    std::vector<mx::array> layers;
    const mx::array last = model->forward({&group, 1}, options.hidden ? &layers : nullptr);
    std::vector<int32_t> rows(count);
    for (size_t i = 0; i < count; ++i) rows[i] = static_cast<int32_t>(i);
    logits.push_back(model->project(last, std::move(rows)));
    mx::eval(logits.back());
    mx::eval(layers);
    hidden.resize(layers.size());
    for (size_t i = 0; i < layers.size(); ++i) hidden[i].push_back(layers[i]);
    cache.commit(static_cast<int64_t>(count));
  }
  std::unordered_map<std::string, mx::array> out;
  out.emplace("logits", mx::concatenate(logits, 0));
  for (size_t i = 0; i < hidden.size(); ++i) {
    // hidden.0 is the embeddings, hidden.N the output of layer N - 1.
    out.emplace(fmt::format("hidden.{}", i), mx::concatenate(hidden[i], 0));
  }
  mx::save_safetensors(options.out_file, out);
  return 0;
}

}  // namespace cohort::app
