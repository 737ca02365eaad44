#include "api/generation.h"
#include "api/openai.h"

namespace cohort::api {

namespace json = boost::json;

namespace {

json::object describe(const std::string& id, const serving::ModelInfo& info) {
  json::object model{
      {"id", id}, {"object", "model"}, {"created", info.created_unix_s}, {"owned_by", "cohort"}};
  if (info.longest_row_tokens > 0) model["context_length"] = info.longest_row_tokens;
  return model;
}

}  // namespace

Reply list_models(const serving::ModelService& service) {
  json::array list;
  for (const std::string& id : service.info().ids) list.push_back(describe(id, service.info()));
  return {.body = json::serialize(json::object{{"object", "list"}, {"data", std::move(list)}})};
}

Reply show_model(const serving::ModelService& service, std::string_view id) {
  const serving::ModelInfo& info = service.info();
  return {.body = json::serialize(describe(model_id(id, info), info))};
}

}  // namespace cohort::api
