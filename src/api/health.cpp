#include "api/openai.h"

namespace cohort::api {

Reply show_health(const serving::ModelService& service) {
  const auto reply = [](int status, std::string_view state) {
    return Reply{.status = status,
                 .body = boost::json::serialize(boost::json::object{{"status", state}})};
  };
  switch (service.health()) {
    case serving::Health::kReady:
      return reply(200, "ok");
    case serving::Health::kLoading:
      return reply(503, "loading");
    case serving::Health::kDraining:
      return reply(503, "draining");
    case serving::Health::kDead:
      break;
  }
  return reply(503, "dead");
}

}  // namespace cohort::api
