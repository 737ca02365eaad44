#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "serving/model_binding.h"

namespace cohort::serving {

/// Stands in for the model until it is loaded, so that the server can say "loading".
///   thread  any; finish_loading once
class ModelHost : public ModelService {
 public:
  explicit ModelHost(std::vector<std::string> names);

  void finish_loading(std::unique_ptr<ModelBinding> binding);
  /// From now on requests are refused; running answers go on.
  void start_draining() { loaded().stop_accepting(); }

  Health health() const override;
  const ModelInfo& info() const override;
  std::vector<int32_t> render(const prompt::Conversation& conversation) const override;
  std::vector<int32_t> tokenize(std::string_view text) const override;
  TokenText token_text(int32_t id) const override { return loaded().token_text(id); }
  std::shared_ptr<engine::Stream> submit(engine::Request request) override;
  const engine::EngineStats& stats() const override { return loaded().stats(); }
  const std::vector<kv::SchemeSummary>& kv_schemes() const override {
    return loaded().kv_schemes();
  }

 private:
  ///   throws  Error{kUnavailable} while loading
  ModelBinding& loaded() const;

  ModelInfo names_only_;
  std::unique_ptr<ModelBinding> binding_;
  std::atomic<ModelBinding*> ready_ = nullptr;
};

}  // namespace cohort::serving
