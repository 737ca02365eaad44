#pragma once

// The real server on a free port, in front of the echo service, over raw sockets.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "api/openai.h"
#include "http/server.h"
#include "tests/support/echo_service.h"
#include "tests/support/raw_client.h"

namespace cohort::http {

using namespace std::chrono_literals;
using cohort::testing::EchoOptions;
using cohort::testing::EchoService;
using cohort::testing::RawClient;
using cohort::testing::RawResponse;

inline ServerOptions quick_options() {
  ServerOptions options;
  options.port = 0;
  options.drain_timeout = 5s;
  return options;
}

/// The server in front of the echo service. A test says what is unusual in `echo`, `options` and
/// `tracing`; its first look at what they make starts all.
class Http : public ::testing::Test {
 protected:
  EchoService& service() { return start().service; }
  Server& server() { return start().server; }
  const Tracer& tracer() { return start().tracer; }
  RawClient connect(int receive_buffer_bytes = 0) {
    return RawClient(server().port(), receive_buffer_bytes);
  }

  EchoOptions echo;
  ServerOptions options = quick_options();
  TracerOptions tracing;

 private:
  struct Running {
    Running(const EchoOptions& echo, ServerOptions options, const TracerOptions& tracing)
        : tracer(tracing),
          service(echo),
          server(api::openai_routes(service, &tracer), (options.tracer = &tracer, options)) {
      server.start();
    }
    Tracer tracer;
    EchoService service;
    Server server;
  };
  Running& start() {
    if (!running_) running_ = std::make_unique<Running>(echo, options, tracing);
    return *running_;
  }
  std::unique_ptr<Running> running_;
};

inline std::string get(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) +
         "\r\n";
}

inline std::string post(std::string_view path, std::string_view body,
                        std::string_view headers = "") {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         std::string(headers) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

inline std::string complete(std::string_view fields) {
  return post("/v1/completions", "{\"prompt\":\"hello\"" + std::string(fields) + "}");
}

inline constexpr std::string_view kEndless =
    R"(,"ignore_eos":true,"temperature":1,"max_tokens":4000,"stream":true)";

template <class Condition>
bool within(std::chrono::milliseconds patience, Condition holds) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

}  // namespace cohort::http
