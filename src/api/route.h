#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/stream.h"

namespace cohort::api {

/// One request as a handler sees it.
struct Call {
  std::string body;
  std::string path_rest;  // what the route's trailing '*' matched, percent-decoded
};

/// A complete answer.
struct Reply {
  int status = 200;
  std::string body;  // JSON
  std::vector<std::pair<std::string, std::string>> headers = {};
};

using Events = std::vector<engine::TokenEvent>;

/// An answer that is complete when its generation has ended.
struct Deferred {
  std::shared_ptr<engine::Stream> stream;
  std::function<Reply(const Events& all)> complete;
};

/// An answer that is sent as server-sent events while it is generated.
struct Streamed {
  std::shared_ptr<engine::Stream> stream;
  std::function<std::string(const Events& arrived)> format;  // called in order; returns bytes
};

/// Who receives a Deferred or Streamed drives its stream, and cancels it when its client goes away.
using Outcome = std::variant<Reply, Deferred, Streamed>;

enum class Work {
  kQuick,  // microseconds; may run on the thread that serves all sockets
  kHeavy,  // parses bodies, renders, tokenizes
};

/// One endpoint. `path` is matched byte for byte; a trailing '*' matches any non-empty rest.
///   handle  any thread, several at once; throws Error
struct Route {
  std::string method;
  std::string path;
  Work work;
  std::function<Outcome(const Call&)> handle;
};

}  // namespace cohort::api
