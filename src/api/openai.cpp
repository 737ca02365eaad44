#include "api/openai.h"

namespace cohort::api {

std::vector<Route> openai_routes(serving::ModelService& service, const Tracer* tracer) {
  const auto chat = [&service](const Call& call) { return chat_completion(service, call); };
  const auto complete = [&service](const Call& call) { return completion(service, call); };
  const auto models = [&service](const Call&) { return list_models(service); };
  const auto model = [&service](const Call& call) { return show_model(service, call.path_rest); };
  const auto stats = [&service](const Call&) { return show_stats(service); };
  const auto health = [&service](const Call&) { return show_health(service); };
  const auto metrics = [&service](const Call&) { return show_metrics(service); };
  const auto traces = [tracer](const Call&) { return show_traces(tracer); };
  return {
      {"POST", "/v1/chat/completions", Work::kHeavy, chat, true},
      {"POST", "/chat/completions", Work::kHeavy, chat, true},
      {"POST", "/v1/completions", Work::kHeavy, complete, true},
      {"GET", "/v1/models", Work::kQuick, models},
      {"GET", "/v1/models/*", Work::kQuick, model},
      {"GET", "/health", Work::kQuick, health},
      {"GET", "/stats", Work::kQuick, stats},
      {"GET", "/metrics", Work::kQuick, metrics},
      {"GET", "/debug/traces", Work::kHeavy, traces},
  };
}

}  // namespace cohort::api
