#include <fmt/format.h>

#include <algorithm>

#include "api/json_input.h"
#include "api/openai.h"
#include "base/error.h"
#include "base/printable.h"

namespace cohort::api {

namespace json = boost::json;

namespace {

json::object describe(const std::string& id, const serving::ModelInfo& info) {
  json::object model{
      {"id", id}, {"object", "model"}, {"created", info.created_unix_s}, {"owned_by", "cohort"}};
  if (info.context_tokens > 0) model["context_length"] = info.context_tokens;
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
  const auto known = std::ranges::find(info.ids, id);
  if (known == info.ids.end()) {
    throw Error(ErrorKind::kNotFound, fmt::format("the model {} does not exist", printable(id)),
                "model", "model_not_found");
  }
  return {.body = json::serialize(describe(*known, info))};
}

}  // namespace cohort::api
