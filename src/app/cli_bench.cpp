#include <fmt/format.h>
#include <mlx/mlx.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>

#include "app/commands.h"
#include "app/loading.h"
#include "base/error.h"
#include "kernels/device.h"
#include "kv/fit.h"
#include "model/checkpoint.h"
#include "model/feed.h"

namespace cohort::app {
namespace {

namespace mx = mlx::core;
using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmUpTokens = 16;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double rate(int64_t tokens, double seconds) {
  return tokens > 0 ? static_cast<double>(tokens) / seconds : 0;
}

/// Evaluates the logits of the last token of each group.
void forward(model::Model& model, std::span<const model::TokenGroup> groups) {
  std::vector<int32_t> last;
  int32_t tokens = 0;
  for (const model::TokenGroup& group : groups) {
    tokens += static_cast<int32_t>(group.ids.size());
    last.push_back(tokens - 1);
  }
  mx::array logits = model.project(model.forward(groups, nullptr), std::move(last));
  logits.eval();
}

/// Rows of a model that are fed arbitrary tokens, without an engine.
class Bench {
 public:
  Bench(kernels::cpu::Cpu& cpu, model::Model& model, kv::RowPrecision precision, int64_t chunk)
      : cpu_(cpu),
        model_(model),
        precision_(std::move(precision)),
        chunk_(chunk),
        memory_(model.shape().layers, SIZE_MAX, model.block_copy()) {}

  void warm_up() {
    kv::RowCache row = memory_.new_row(precision_);
    feed(row, kWarmUpTokens);
    feed(row, 1);
  }

  /// Seconds that one row takes to read so many tokens.
  double prefill(int64_t tokens) {
    kv::RowCache row = memory_.new_row(precision_);
    const auto start = Clock::now();
    feed(row, tokens);
    return seconds_since(start);
  }

  /// Seconds that the rows take for `tokens` forwards of one token each, behind `depth` tokens.
  double decode(int64_t tokens, int64_t depth, int64_t rows) {
    std::vector<kv::RowCache> caches;
    for (int64_t i = 0; i < rows; ++i) {
      caches.push_back(memory_.new_row(precision_));
      feed(caches.back(), depth);
    }
    const std::vector<int32_t> id = ids(1);
    const auto start = Clock::now();
    for (int64_t i = 0; i < tokens; ++i) {
      std::vector<model::TokenGroup> groups;
      for (kv::RowCache& cache : caches) groups.push_back({id, cache});
      forward(model_, groups);
      for (kv::RowCache& cache : caches) {
        cache.commit(1);
        cache.maintain(cpu_);
      }
    }
    return seconds_since(start);
  }

 private:
  std::vector<int32_t> ids(int64_t count) const {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i) {
      ids.push_back(static_cast<int32_t>((i * 7919 + 13) % model_.shape().vocab_size));
    }
    return ids;
  }
  void feed(kv::RowCache& row, int64_t tokens) {
    model::feed(cpu_, row, ids(tokens), chunk_,
                [&](const model::TokenGroup& group) { forward(model_, {&group, 1}); });
  }

  kernels::cpu::Cpu& cpu_;
  model::Model& model_;
  kv::RowPrecision precision_;
  int64_t chunk_;
  kv::KvMemory memory_;
};

/// Refuses rows that memory cannot hold before the work of filling them: keys and values, and of
/// each row the activations and logits of a token, beside the forward of a chunk.
void require_room(const Settings& settings, const model::ModelShape& shape,
                  const kv::RowPrecision& precision, int64_t rows, int64_t tokens) {
  const int64_t chunk = prefill_chunk(settings);
  const size_t token = shape.working_bytes_per_token;
  const size_t of_chunk = token * static_cast<size_t>(std::min(chunk, tokens));
  const size_t usable = kernels::free_block_bytes(settings.device) / 10 * 9;  // others need some
  const size_t room = usable - std::min(usable, of_chunk);
  const size_t row = kv::peak_bytes(precision, shape.layers, tokens, chunk) + token +
                     static_cast<size_t>(shape.vocab_size) * sizeof(float);
  if (row <= room / static_cast<size_t>(rows)) return;
  const auto mb = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  fail(ErrorKind::kTooLarge,
       "a row of {} tokens needs {:.1f} MB of memory; the {:.1f} MB that are left hold {}, not {}",
       tokens, mb(row), mb(room), room / row, rows);
}

}  // namespace

/// Times one prompt, and the answers of rows that hold others, after a warm-up.
int run_bench(const Settings& settings, const BenchOptions& options) {
  kernels::use(settings.device);
  kernels::cpu::Cpu cpu(settings.threads);
  const std::string path = find_model(settings).path.string();
  const auto checkpoint = model::Checkpoint::open(path);
  const auto model = model::load_model(checkpoint, load_options(settings), cpu);
  const auto [prefill, decode, depth, batch, json] = options;
  if (std::max(prefill, depth + decode) > model->shape().context_tokens) {
    fail(ErrorKind::kInvalidRequest,
         "{} tokens, or {} behind {}, are more than the model's context of {}", prefill, decode,
         depth, model->shape().context_tokens);
  }
  kv::RowPrecision precision = kv::resolve(kv_scheme(settings, path), model->shape().layers);
  require_room(settings, model->shape(), precision, 1, prefill);
  if (decode > 0) require_room(settings, model->shape(), precision, batch, depth + decode);
  Bench bench(cpu, *model, std::move(precision), prefill_chunk(settings));
  bench.warm_up();
  const double prefill_rate = rate(prefill, bench.prefill(prefill));
  const double decode_s = decode > 0 ? bench.decode(decode, depth, batch) : 0;
  const double decode_rate = rate(decode * batch, decode_s);
  if (json) {
    fmt::print("{}\n",
               boost::json::serialize(boost::json::object{{"model", settings.model},
                                                          {"threads", cpu.pool().size()},
                                                          {"kernels", cpu.kernels().name},
                                                          {"weight_bytes", model->weight_bytes()},
                                                          {"prefill_tokens", prefill},
                                                          {"decode_tokens", decode},
                                                          {"depth_tokens", depth},
                                                          {"batch_rows", batch},
                                                          {"prefill_tok_s", prefill_rate},
                                                          {"decode_tok_s", decode_rate}}));
    return 0;
  }
  fmt::print("{}: {} threads, {} kernels\n", settings.model, cpu.pool().size(), cpu.kernels().name);
  fmt::print("prefill {:5} tokens  {:8.1f} tok/s\n", prefill, prefill_rate);
  // A forward reads every weight once.
  const double gb_s = rate(decode, decode_s) * static_cast<double>(model->weight_bytes()) / 1e9;
  fmt::print("decode  {:5} tokens  {:8.1f} tok/s, {:.1f} GB/s of weights", decode, decode_rate,
             gb_s);
  fmt::print(" (rows: {}, behind {} tokens)\n", batch, depth);
  return 0;
}

}  // namespace cohort::app
