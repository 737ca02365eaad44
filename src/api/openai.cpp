#include "api/openai.h"

namespace cohort::api {

std::vector<Route> openai_routes(serving::ModelService& service) {
  const auto chat = [&service](const Call& call) { return chat_completion(service, call.body); };
  const auto complete = [&service](const Call& call) { return completion(service, call.body); };
  const auto models = [&service](const Call&) { return list_models(service); };
  const auto model = [&service](const Call& call) { return show_model(service, call.path_rest); };
  const auto stats = [&service](const Call&) { return show_stats(service); };
  const auto health = [&service](const Call&) { return show_health(service); };
  return {
      {"POST", "/v1/chat/completions", Work::kHeavy, chat},
      {"POST", "/chat/completions", Work::kHeavy, chat},
      {"POST", "/v1/completions", Work::kHeavy, complete},
      {"GET", "/v1/models", Work::kQuick, models},
      {"GET", "/v1/models/*", Work::kQuick, model},
      {"GET", "/health", Work::kQuick, health},
      {"GET", "/stats", Work::kQuick, stats},
  };
}

}  // namespace cohort::api
