#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>

#include "api/stats.h"
#include "app/commands.h"
#include "app/loading.h"
#include "kv/fit.h"
#include "model/checkpoint.h"

namespace cohort::app {
namespace {

constexpr double kUsableShare = 0.75;  // of the machine's memory: others need some, too
// The program itself, and what a tokenizer takes for each of its tokens (measured).
constexpr size_t kProgramBytes = 16 << 20, kTokenBytes = 320;

struct Fit {
  kv::SchemeSummary scheme;
  int64_t tokens = 0;     // of one row
  int64_t full_rows = 0;  // rows of the whole context at the same time
};

std::vector<Fit> fits(const kv::KvScheme& base, const model::ModelShape& shape, size_t room,
                      int64_t chunk) {
  std::vector<Fit> results;
  for (kv::SchemeSummary& scheme : kv::summarize(base, shape.layers)) {
    Fit& fit = results.emplace_back();
    fit.scheme = std::move(scheme);
    if (!fit.scheme.refused.empty()) continue;
    const kv::RowPrecision& precision = fit.scheme.precision;
    fit.tokens = kv::tokens_that_fit(precision, shape.layers, room, shape.context_tokens, chunk);
    const size_t whole = kv::peak_bytes(precision, shape.layers, shape.context_tokens, chunk);
    fit.full_rows = static_cast<int64_t>(room / std::max<size_t>(whole, 1));
  }
  return results;
}

size_t machine_bytes() {
  return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

std::string layer_text(const std::vector<kv::LayerGroup>& groups) {
  std::string text;
  for (const kv::LayerGroup& group : groups) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", group.layers, group.signature);
  }
  return text;
}

boost::json::object as_json(const Fit& fit) {
  boost::json::object described = api::describe(fit.scheme);
  if (fit.scheme.refused.empty()) {
    described["context_tokens"] = fit.tokens;
    described["rows_of_whole_context"] = fit.full_rows;
  }
  return described;
}

void print_table(const std::vector<Fit>& all, int64_t context) {
  fmt::print("{:<12}{:>13}{:>20}{:>24}   layers\n", "--kv-quant", "bytes/token",
             "context that fits", fmt::format("rows of {} tokens", context));
  for (const Fit& fit : all) {
    if (!fit.scheme.refused.empty()) {
      fmt::print("{:<12}no: {}\n", fit.scheme.words, fit.scheme.refused);
      continue;
    }
    fmt::print("{:<12}{:>13}{:>20}{:>24}   {}\n", fit.scheme.words, fit.scheme.bytes_per_token,
               fit.tokens, fit.full_rows, layer_text(fit.scheme.groups));
  }
}

}  // namespace

int run_fit(const Settings& settings, const FitOptions& options) {
  const std::string path = find_model(settings).path.string();
  const auto checkpoint = model::Checkpoint::open(path);
  const model::ModelShape shape = model::read_shape(checkpoint);
  const kv::KvScheme scheme = kv_scheme(settings, path, KvConfig::kAlways);
  const size_t memory =
      options.memory_mb ? static_cast<size_t>(*options.memory_mb) << 20
                        : static_cast<size_t>(kUsableShare * static_cast<double>(machine_bytes()));
  const size_t weights = model::packed_bytes(checkpoint);
  const size_t working =
      shape.working_bytes_per_token * static_cast<size_t>(prefill_chunk(settings));
  const size_t program = kProgramBytes + kTokenBytes * static_cast<size_t>(shape.vocab_size);
  const size_t room = memory - std::min(memory, weights + program + working);
  const std::vector<Fit> all = fits(scheme, shape, room, prefill_chunk(settings));
  if (options.json) {
    boost::json::array schemes;
    for (const Fit& fit : all) schemes.push_back(as_json(fit));
    fmt::print("{}\n", boost::json::serialize(
                           boost::json::object{{"model", settings.model},
                                               {"memory_bytes", memory},
                                               {"weight_bytes", weights},
                                               {"program_bytes", program},
                                               {"working_bytes", working},
                                               {"kv_bytes", room},
                                               {"model_context_tokens", shape.context_tokens},
                                               {"schemes", std::move(schemes)}}));
    return 0;
  }
  const auto mb = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  fmt::print(
      "{}: of {:.0f} MB{}, weights take {:.0f}, the program {:.0f} and a forward of {} tokens "
      "{:.0f};\n"
      "{:.0f} MB are left for keys and values.\n\n",
      settings.model, mb(memory),
      options.memory_mb ? "" : fmt::format(" ({:.0f} % of this machine)", 100 * kUsableShare),
      mb(weights), mb(program), prefill_chunk(settings), mb(working), mb(room));
  print_table(all, shape.context_tokens);
  return 0;
}

}  // namespace cohort::app
