#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/settings.h"

namespace cohort::app {

// What a subcommand takes beyond the settings. Each run_ function returns the exit status and
// throws Error; the thread is the main one.

struct ServeOptions {};  // `cohort serve` has only settings

struct RunOptions {
  std::optional<std::string> prompt;    // absent and no ids_file = interactive chat
  std::optional<std::string> ids_file;  // a JSON list of prompt token ids instead of text
  bool prompt_is_a_guess = false;       // a lone word, which a mistyped model is, too
  std::optional<uint64_t> seed;         // absent = a fresh one
  bool json = false;                    // one object at the end instead of streamed text
};

struct LogitsOptions {
  std::string ids_file;                 // a JSON list of token ids
  std::string out_file;                 // safetensors: logits [tokens, vocab], embeddings, hidden.N
  std::optional<int64_t> chunk_tokens;  // absent = all in one forward
  bool hidden = false;                  // also the embeddings and the output of each layer
};

struct BenchOptions {
  int64_t prefill_tokens = 512;  // 0 = prefill is not measured
  int64_t decode_tokens = 128;   // of each row; 0 = decode is not measured
  int64_t depth_tokens = 0;      // that decoding rows hold before
  int64_t batch_rows = 1;        // that decode together
  bool json = false;
};

struct PullOptions {
  bool update = false;  // ask the hub even if the model is complete here
};

struct LsOptions {};

struct FitOptions {
  std::optional<int64_t> memory_mb;  // absent = most of the machine's
  bool json = false;
};

struct CacheOptions {
  std::string action;  // ls, verify or gc
};

int run_serve(const Settings& settings, const ServeOptions& options);
int run_run(const Settings& settings, const RunOptions& options);
int run_logits(const Settings& settings, const LogitsOptions& options);
int run_bench(const Settings& settings, const BenchOptions& options);
int run_pull(const Settings& settings, const PullOptions& options);
int run_ls(const Settings& settings, const LsOptions& options);
int run_fit(const Settings& settings, const FitOptions& options);
int run_cache(const Settings& settings, const CacheOptions& options);

/// "cohort 0.1.0 (MLX 0.32.4)".
std::string version_line();

}  // namespace cohort::app
