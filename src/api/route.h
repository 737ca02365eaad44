#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/trace.h"
#include "engine/stream.h"

namespace cohort::api {

/// One request as a handler sees it.
struct Call {
  std::string body;
  std::string path_rest = {};   // what the route's trailing '*' matched, percent-decoded
  std::string request_id = {};  // the caller's name for it, or one of ours
  bool own_request_id = false;  // it is the caller's
  std::string client = {};      // who asks: a digest of the key that was sent; "" = none was
  std::optional<std::string> priority = {};  // the header X-Priority
  std::string session = {};           // a conversation, as the head names it; "" = it does not
  std::shared_ptr<Trace> trace = {};  // null = off
};

/// A complete answer.
struct Reply {
  int status = 200;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string content_type = "application/json";
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
  bool traced = false;  // its calls have a trace, if traces are on
};

}  // namespace cohort::api
