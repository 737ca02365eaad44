#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/route.h"

namespace cohort::http {

/// A route that takes a request, and what its '*' matched.
struct Match {
  const api::Route* route;
  std::string path_rest;
};

/// Finds routes and runs their handlers. Immutable; any thread.
class Router {
 public:
  explicit Router(std::vector<api::Route> routes) : routes_(std::move(routes)) {}

  /// Paths are compared byte for byte, without normalizing; a query is ignored. HEAD finds GET.
  ///   returns  a route, or the reply 404, 405 with Allow, or 204 with Allow to OPTIONS
  std::variant<Match, api::Reply> find(std::string_view method, std::string_view target) const;
  /// Runs a handler; whatever it throws becomes an error reply.
  ///   failure  set to the text of an exception that is our fault, for the log
  api::Outcome run(const api::Route& route, const api::Call& call, std::string& failure) const;

 private:
  const std::vector<api::Route> routes_;
};

}  // namespace cohort::http
