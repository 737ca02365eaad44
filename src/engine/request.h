#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/trace.h"

namespace cohort::engine {

/// What a caller asked of the sampler; absent means "not said" and is filled by precedence:
/// request > command-line flag > generation_config.json > built-in (serving/model_binding).
struct SamplingOptions {
  std::optional<float> temperature;         // 0 = greedy
  std::optional<float> top_p;               // (0, 1], 1 = off
  std::optional<int32_t> top_k;             // 0 = off
  std::optional<float> min_p;               // [0, 1), 0 = off
  std::optional<float> repetition_penalty;  // > 0, 1 = off
  std::optional<float> presence_penalty;    // [-2, 2], 0 = off
  std::optional<float> frequency_penalty;   // [-2, 2], 0 = off
  std::optional<uint64_t> seed;             // of choice 0, choice i has seed + i; absent = a fresh
                                            // one, returned in Stream::seed()
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added to its logit
};

/// Who goes first when not all can. A request that waits rises one class every 30 s (see
/// engine/waiting_line.h).
enum class Priority { kHigh, kNormal, kLow };

/// Tokens [begin, end) of a prompt that one forward must hold.
struct TokenSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

/// One generation, as an API or the command line asks for it.
struct Request {
  std::string id;                       // for logs and traces
  bool own_id = false;                  // the caller chose it: a retry may go on under it
  std::vector<int32_t> prompt;          // token ids, at least one
  std::string prompt_field = "prompt";  // what the caller gave it as, for errors
  std::string max_tokens_field = "max_tokens";
  std::optional<int64_t> max_tokens;  // of one choice; absent = until the end of the context
  int choices = 1;                    // answers to the same prompt, read once
  std::optional<int> top_logprobs;    // absent: no logprobs; else that many alternatives a token
  Priority priority = Priority::kNormal;
  std::string session;            // a conversation, whose prefixes are kept longer; "" = none
  std::string cache_salt;         // only requests of equal salt share prefixes; "" = of one client
  bool cache_prompt = true;       // whether prefixes are looked up and kept
  std::string client;             // who asks: takes turns with others, shares no prefixes with them
  std::vector<TokenSpan> atomic;  // in order, apart from each other
  SamplingOptions sampling;
  std::vector<std::string> stop;  // stop strings; the matched text is not emitted
  bool ignore_eos = false;
  std::string kv_quant;          // as --kv-quant takes it; "" = the server's
  std::shared_ptr<Trace> trace;  // null = off
};

/// Throws Error{kInvalidRequest} naming the field at fault unless there is a prompt and it fits the
/// context together with the answer that was asked for; at least one token of an answer must fit.
void require_fit(const Request& request, int64_t context_tokens);

enum class FinishReason { kStop, kLength, kCancelled, kError };

}  // namespace cohort::engine
