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

json::value describe(const std::optional<store::SsdStats>& stats) {
  if (!stats) return nullptr;
  return json::object{{"files", stats->files},
                      {"bytes", stats->bytes},
                      {"pending_writes", stats->pending_writes},
                      {"hits", stats->hits},
                      {"misses", stats->misses},
                      {"hit_tokens", stats->hit_tokens},
                      {"written_bytes", stats->written_bytes},
                      {"restored_bytes", stats->restored_bytes},
                      {"removed", stats->removed},
                      {"damaged", stats->damaged},
                      {"foreign", stats->foreign},
                      {"dropped", stats->dropped},
                      {"write_errors", stats->write_errors},
                      {"read_errors", stats->read_errors}};
}

Reply show_stats(const serving::ModelService& service) {
  const engine::EngineStats& stats = service.stats();
  const serving::ModelInfo& info = service.info();
  json::array schemes;
  for (const kv::SchemeSummary& scheme : service.kv_schemes()) schemes.push_back(describe(scheme));
  const json::object kv{{"scheme", info.kv_scheme},
                        {"by_request", info.kv_by_request},
                        {"used_bytes", stats.kv_used_bytes.load()},
                        {"held_bytes", stats.kv_held_bytes.load()},
                        {"schemes", std::move(schemes)}};
  const json::object prefixes{
      {"entries", stats.prefixes.load()},           {"bytes", stats.prefix_bytes.load()},
      {"hits", stats.prefix_hits.load()},           {"misses", stats.prefix_misses.load()},
      {"evictions", stats.prefix_evictions.load()}, {"cached_tokens", stats.cached_tokens.load()}};
  return {.body = json::serialize(json::object{{"rows", stats.rows.load()},
                                               {"waiting", stats.waiting.load()},
                                               {"parked", stats.parked.load()},
                                               {"preemptions", stats.preemptions.load()},
                                               {"resumed_answers", stats.resumed_answers.load()},
                                               {"iterations", stats.iterations.load()},
                                               {"failed_forwards", stats.failed_forwards.load()},
                                               {"kv", kv},
                                               {"prefix_cache", prefixes},
                                               {"ssd_cache", describe(service.ssd_stats())}})};
}

Reply flush_ssd(serving::ModelService& service) {
  constexpr std::chrono::seconds kPatience{60};
  if (!service.flush_ssd(kPatience)) {
    fail(ErrorKind::kUnavailable, "not all prefixes could be made durable; /stats says more");
  }
  return {.body = json::serialize(json::object{{"durable", true}})};
}

}  // namespace cohort::api
