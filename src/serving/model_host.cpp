#include "serving/model_host.h"

#include <utility>

#include "base/error.h"

namespace cohort::serving {

ModelHost::ModelHost(std::vector<std::string> names) {
  names_only_.ids = std::move(names);
}

void ModelHost::finish_loading(std::unique_ptr<ModelBinding> binding) {
  binding_ = std::move(binding);
  ready_ = binding_.get();
}

ModelBinding& ModelHost::loaded() const {
  ModelBinding* binding = ready_;
  if (binding == nullptr) {
    throw Error(ErrorKind::kUnavailable, "the model is still loading", "", "model_loading");
  }
  return *binding;
}

Health ModelHost::health() const {
  const ModelBinding* binding = ready_;
  return binding == nullptr ? Health::kLoading : binding->health();
}

const ModelInfo& ModelHost::info() const {
  const ModelBinding* binding = ready_;
  return binding == nullptr ? names_only_ : binding->info();
}

std::vector<int32_t> ModelHost::render(const prompt::Conversation& conversation) const {
  return loaded().render(conversation);
}

std::vector<int32_t> ModelHost::tokenize(std::string_view text) const {
  return loaded().tokenize(text);
}

std::shared_ptr<engine::Stream> ModelHost::submit(engine::Request request) {
  return loaded().submit(std::move(request));
}

}  // namespace cohort::serving
