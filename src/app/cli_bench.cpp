#include <fmt/format.h>
#include <mlx/mlx.h>

#include <boost/json.hpp>

#include <chrono>

#include "app/commands.h"
#include "app/loading.h"
#include "base/error.h"
#include "kernels/device.h"
#include "model/checkpoint.h"
#include "model/feed.h"

namespace cohort::app {
namespace {

namespace mx = mlx::core;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Evaluates the logits of a group's last token.
void forward(model::Model& model, const model::TokenGroup& group) {
  const auto last = static_cast<int32_t>(group.ids.size()) - 1;
  mx::array logits = model.project(model.forward({&group, 1}, nullptr), {last});
  logits.eval();
}

}  // namespace

/// Times one prompt and one answer of arbitrary tokens, after a warm-up, without an engine.
int run_bench(const Settings& settings, const BenchOptions& options) {
  kernels::use(settings.device);
  kernels::cpu::Cpu cpu(settings.threads);
  const std::string path = find_model(settings).path.string();
  const auto checkpoint = model::Checkpoint::open(path);
  const auto model = model::load_model(checkpoint, load_options(settings), cpu);
  const kv::RowPrecision precision = kv::resolve(kv_scheme(settings, path), model->shape().layers);
  const int64_t prefill = options.prefill_tokens, decode = options.decode_tokens;
  if (prefill + decode > model->shape().context_tokens) {
    fail(ErrorKind::kInvalidRequest, "{} + {} tokens are more than the model's context of {}",
         prefill, decode, model->shape().context_tokens);
  }
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < std::max<int64_t>(prefill, 16); ++i) {
    ids.push_back(static_cast<int32_t>((i * 7919 + 13) % model->shape().vocab_size));
  }
  kv::KvMemory memory(model->shape().layers, SIZE_MAX, model->block_copy());
  const auto feed = [&](kv::RowCache& cache, int64_t tokens) {
    model::feed(cpu, cache, std::span(ids).first(static_cast<size_t>(tokens)),
                prefill_chunk(settings),
                [&](const model::TokenGroup& group) { forward(*model, group); });
  };
  {
    kv::RowCache warm = memory.new_row(precision);
    feed(warm, 16);
    feed(warm, 1);
  }
  kv::RowCache cache = memory.new_row(precision);
  auto start = Clock::now();
  feed(cache, prefill);
  const double prefill_s = seconds_since(start);
  start = Clock::now();
  for (int64_t i = 0; i < decode; ++i) feed(cache, 1);
  const double decode_s = seconds_since(start);
  const double prefill_rate = prefill > 0 ? static_cast<double>(prefill) / prefill_s : 0;
  const double decode_rate = decode > 0 ? static_cast<double>(decode) / decode_s : 0;
  if (options.json) {
    fmt::print("{}\n", boost::json::serialize(boost::json::object{{"model", settings.model},
                                                                  {"threads", cpu.pool().size()},
                                                                  {"kernels", cpu.kernels().name},
                                                                  {"prefill_tokens", prefill},
                                                                  {"decode_tokens", decode},
                                                                  {"prefill_tok_s", prefill_rate},
                                                                  {"decode_tok_s", decode_rate}}));
  } else {
    fmt::print("{}: {} threads, {} kernels\n", settings.model, cpu.pool().size(),
               cpu.kernels().name);
    fmt::print("prefill {:5} tokens  {:8.1f} tok/s\n", prefill, prefill_rate);
    fmt::print("decode  {:5} tokens  {:8.1f} tok/s\n", decode, decode_rate);
  }
  return 0;
}

}  // namespace cohort::app
