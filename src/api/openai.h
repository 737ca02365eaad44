#pragma once

#include <boost/json.hpp>
#include <string_view>
#include <vector>

#include "api/generation_fields.h"
#include "api/route.h"
#include "base/trace.h"
#include "serving/model_service.h"

namespace cohort::api {

/// The OpenAI protocol: chat completions, completions, models; and what to watch a server by.
///   service, tracer  outlive the routes; no tracer is one that is off
std::vector<Route> openai_routes(serving::ModelService& service, const Tracer* tracer = nullptr);

// One function per endpoint; openai_routes says their paths. All throw Error.

Outcome chat_completion(serving::ModelService& service, const Call& call);
Outcome completion(serving::ModelService& service, const Call& call);
Reply list_models(const serving::ModelService& service);
Reply show_model(const serving::ModelService& service, std::string_view id);
Reply show_health(const serving::ModelService& service);
Reply show_stats(const serving::ModelService& service);
/// Answers when all that was kept so far is durable on SSD.
///   throws  kUnsupported without an SSD cache, kUnavailable after a minute or if writing failed
Reply flush_ssd(serving::ModelService& service);
Reply show_metrics(const serving::ModelService& service);
Reply show_traces(const Tracer* tracer);

// The reading halves of the two generating endpoints.

Draft read_chat(const boost::json::object& body, const serving::ModelInfo& model);
Draft read_completion(const boost::json::object& body, const serving::ModelInfo& model);

}  // namespace cohort::api
