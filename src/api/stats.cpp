#include "api/stats.h"

#include "api/openai.h"

namespace cohort::api {

namespace json = boost::json;

json::object describe(const kv::SchemeSummary& scheme) {
  if (!scheme.refused.empty()) return {{"kv_quant", scheme.words}, {"refused", scheme.refused}};
  json::array layers;
  for (const kv::LayerGroup& group : scheme.groups) {
    layers.push_back({{"kind", group.signature},
                      {"layers", group.layers},
                      {"bytes_per_token", group.bytes_per_token}});
  }
  return {{"kv_quant", scheme.words},
          {"bytes_per_token", scheme.bytes_per_token},
          {"layers", std::move(layers)}};
}

Reply show_stats(const serving::ModelService& service) {
  const serving::ServiceStats stats = service.stats();
  json::array schemes;
  for (const kv::SchemeSummary& scheme : service.kv_schemes()) schemes.push_back(describe(scheme));
  return {.body = json::serialize(json::object{{"rows", stats.rows},
                                               {"waiting", stats.waiting},
                                               {"iterations", stats.iterations},
                                               {"failed_forwards", stats.failed_forwards},
                                               {"kv",
                                                {{"scheme", stats.kv_scheme},
                                                 {"by_request", stats.kv_by_request},
                                                 {"used_bytes", stats.kv_used_bytes},
                                                 {"held_bytes", stats.kv_held_bytes},
                                                 {"schemes", std::move(schemes)}}}})};
}

}  // namespace cohort::api
