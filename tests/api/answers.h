#pragma once

// Drives the outcome of a request to its end, as the http room does.

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/openai.h"

namespace cohort::api {

inline Events all_events(engine::Stream& stream) {
  Events all;
  while (all.empty() || !all.back().last) {
    for (auto& event : stream.wait()) all.push_back(std::move(event));
  }
  return all;
}

/// Endpoints for tests to which only the body of a call matters.
inline Outcome chat_completion(serving::ModelService& service, const std::string& body) {
  return chat_completion(service, Call{.body = body});
}

inline Outcome completion(serving::ModelService& service, const std::string& body) {
  return completion(service, Call{.body = body});
}

inline Reply whole(Outcome outcome) {
  auto& deferred = std::get<Deferred>(outcome);
  return deferred.complete(all_events(*deferred.stream));
}

/// The data of each server-sent event.
inline std::vector<std::string> data_of(std::string_view bytes) {
  std::vector<std::string> result;
  while (!bytes.empty()) {
    const size_t end = bytes.find("\n\n");
    if (!bytes.starts_with("data: ") || end == std::string_view::npos) {
      ADD_FAILURE() << "not an event: " << bytes;
      break;
    }
    result.emplace_back(bytes.substr(6, end - 6));
    bytes.remove_prefix(end + 2);
  }
  return result;
}

inline std::vector<std::string> streamed(Outcome outcome) {
  auto& stream = std::get<Streamed>(outcome);
  std::string bytes;
  for (const auto& event : all_events(*stream.stream)) bytes += stream.format({event});
  return data_of(bytes);
}

}  // namespace cohort::api
