#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_stats.h"
#include "engine/request.h"
#include "engine/stream.h"
#include "kv/fit.h"
#include "prompt/conversation.h"
#include "store/ssd/ssd_stats.h"

namespace cohort::serving {

enum class Health { kLoading, kReady, kDraining, kDead };

struct ModelInfo {
  std::vector<std::string> ids;  // the first is the one /v1/models lists first; all are accepted
  int64_t created_unix_s = 0;
  int64_t context_tokens = 0;
  int64_t longest_row_tokens = 0;  // that its memory for keys and values holds, at most the context
  int32_t vocab_size = 0;
  bool has_chat_template = false;
  std::string kv_scheme;       // how keys and values are stored unless a request says otherwise
  bool kv_by_request = false;  // whether a request may
  int choices_max = 32;        // answers that one request may ask for (--max-rows)
};

/// What one token stands for.
struct TokenText {
  std::string bytes;     // may begin or end inside a character
  std::string text;      // the same as UTF-8, with U+FFFD for what is no character on its own
  bool special = false;  // <|im_end|> and the like, which the text of an answer leaves out
};

/// What an API may ask of the loaded model. All calls: any thread, throw Error.
class ModelService {
 public:
  virtual ~ModelService() = default;
  virtual Health health() const = 0;
  /// Valid for the life of the service. While loading: only `ids`.
  virtual const ModelInfo& info() const = 0;
  /// Renders with the model's chat template and tokenizes; special tokens in user text stay text.
  ///   throws  kUnsupported without a template, kInvalidRequest when the template refuses
  virtual std::vector<int32_t> render(const prompt::Conversation& conversation) const = 0;
  /// Tokenizes the raw prompt of /v1/completions: special-token strings are special tokens, as the
  /// caller is its own template; BOS is put in front if the model wants it and it is not there,
  /// EOS never behind: the answer continues the prompt.
  virtual std::vector<int32_t> tokenize(std::string_view text) const = 0;
  /// An id that stands for nothing has no bytes.
  virtual TokenText token_text(int32_t id) const = 0;
  /// Starts a generation.
  ///   throws  kInvalidRequest (engine::require_fit, ids), kOverloaded, kUnavailable
  virtual std::shared_ptr<engine::Stream> submit(engine::Request request) = 0;
  /// Valid for the life of the service.
  ///   throws  kUnavailable while loading
  virtual const engine::EngineStats& stats() const = 0;
  /// Of the SSD cache; nullopt without one. Same throws.
  virtual std::optional<store::SsdStats> ssd_stats() const = 0;
  /// Returns when all prefixes that were kept so far are on SSD.
  ///   returns  false if that took longer than `limit` or some could not be written
  ///   throws   kUnsupported without an SSD cache, kUnavailable while loading
  virtual bool flush_ssd(std::chrono::milliseconds limit) = 0;
  /// What the ways to store keys and values take. Same.
  virtual const std::vector<kv::SchemeSummary>& kv_schemes() const = 0;
};

}  // namespace cohort::serving
