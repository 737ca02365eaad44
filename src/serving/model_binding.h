#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kernels/cpu/cpu.h"
#include "kv/scheme.h"
#include "model/model.h"
#include "serving/model_service.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace cohort::model {
struct Checkpoint;
}
namespace cohort::engine {
class ModelForward;
}

namespace cohort::serving {

/// How a model is to be loaded and served.
struct BindingOptions {
  std::string path;                // a .gguf file or a folder
  std::vector<std::string> names;  // ids that requests may use; the first one is shown
  int threads = 0;                 // 0 = every core
  int64_t context_tokens = 0;      // 0 = the model's
  model::LoadOptions load;
  kv::KvScheme kv;               // how keys and values are stored
  bool kv_by_request = false;    // requests may choose another quantization
  engine::EngineOptions engine;  // kv_memory_bytes 0 = half of what is free after loading
  store::SsdOptions ssd;         // folder "" = none; the identity is the binding's to make
  std::optional<size_t> prompt_cache_bytes;  // of kept prefixes; absent = half of kv_memory_bytes
  engine::SamplingOptions sampling;   // flags: over generation_config.json, under the request
  std::optional<int64_t> max_tokens;  // of an answer whose request does not say
  std::string chat_template;          // Jinja source; "" = the checkpoint's
};

/// One loaded model, whole: tokenizer, template, weights, engine.
class ModelBinding : public ModelService {
 public:
  /// Loads; takes as long as packing the weights does.
  ///   throws  Error naming the file and the reason
  explicit ModelBinding(BindingOptions options);
  ~ModelBinding() override;

  Health health() const override;
  const ModelInfo& info() const override { return info_; }
  std::vector<int32_t> render(const prompt::Conversation& conversation) const override;
  std::vector<int32_t> tokenize(std::string_view text) const override;
  TokenText token_text(int32_t id) const override;
  std::shared_ptr<engine::Stream> submit(engine::Request request) override;

  /// Refuses requests from now on; running answers go on.
  void stop_accepting() { engine_->stop_accepting(); }
  const engine::EngineStats& stats() const override { return engine_->stats(); }
  std::optional<store::SsdStats> ssd_stats() const override;
  bool flush_ssd(std::chrono::milliseconds limit) override;
  const std::vector<kv::SchemeSummary>& kv_schemes() const override { return kv_schemes_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  kv::KvScheme scheme(const engine::Request& request) const;
  /// How long the answer may be: what the request asks for, or else what fits the context and the
  /// memory for keys and values.
  ///   throws  Error{kTooLarge} when memory could not hold it even if all else were free
  int64_t answer_tokens(const engine::Request& request, const kv::RowPrecision& precision) const;
  /// What is known of an answer that may be resumed; absent = it may not.
  std::optional<store::Generation> generation(const engine::Request& request,
                                              const engine::SamplingParams& sampling,
                                              const store::Namespace& space) const;
  engine::SamplingParams resolve(const engine::SamplingOptions& request) const;
  /// Refuses texts that cannot fit into the context, before the work of tokenizing all of them.
  ///   throws  Error{kInvalidRequest} about `field`
  void require_possible(std::span<const std::string_view> texts, text::SpecialTokens special,
                        const char* field) const;

  BindingOptions options_;
  ModelInfo info_;
  kernels::cpu::Cpu cpu_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<text::ChatTemplate> template_;
  engine::SamplingOptions generation_config_;  // what the checkpoint recommends
  std::vector<int32_t> leading_;               // put before plain text
  std::unique_ptr<model::Model> model_;
  kv::RowPrecision default_precision_;
  std::vector<kv::SchemeSummary> kv_schemes_;
  std::atomic_flag flushing_;
  std::unique_ptr<engine::ModelForward> forward_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace cohort::serving
