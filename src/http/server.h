#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/route.h"
#include "base/trace.h"

namespace cohort::http {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0 = any free one
  // Besides loopback names, IP addresses and `host`.
  std::vector<std::string> allowed_hosts = {};
  // Besides loopback pages and the server's own: "https://chat.example".
  std::vector<std::string> allowed_origins = {};

  // Printable ASCII without spaces. Empty: nobody needs one.
  std::vector<std::string> api_keys = {};

  size_t header_bytes_max = 64 << 10;
  uint64_t body_bytes_max = 32 << 20;
  uint64_t all_bodies_bytes_max = 512 << 20;  // of requests that are being read or handled
  // A further one takes the place of the longest idle one, or of one whose request takes longer to
  // arrive than `arrival_time`.
  size_t connections_max = 1024;
  std::chrono::milliseconds arrival_time{2000};
  size_t handler_threads = 8;        // they mostly wait: for a template, for a lock
  size_t large_handler_threads = 2;  // of bodies above 256 KB: nobody else waits behind these

  std::chrono::milliseconds idle_timeout{75'000};             // between two requests
  std::chrono::milliseconds header_timeout{10'000};           // first to last byte of a head
  std::chrono::milliseconds body_timeout{60'000};             // of a whole body
  std::chrono::milliseconds write_timeout{30'000};            // a reader that takes nothing
  std::chrono::milliseconds stream_comment_interval{15'000};  // keeps a silent stream open
  std::chrono::milliseconds drain_timeout{30'000};            // for running answers, in stop()

  std::function<void(std::string_view)> log = [](std::string_view) {};  // any thread
  Tracer* tracer = nullptr;  // of the routes that are traced; outlives the server
};

/// Serves routes over HTTP/1.1 and keeps strangers out: Host and Origin checks, keys, limits,
/// timeouts. One thread does all socket work; heavy handlers run on others.
///   thread  start() and stop() from the thread that owns it
class Server {
 public:
  Server(std::vector<api::Route> routes, const ServerOptions& options);
  ~Server();  // stop()

  /// Binds and serves. Once in the life of a server. From here on, SIGPIPE and SIGXFSZ are ignored,
  /// and the process may open more files than connections_max.
  ///   throws  Error{kUnavailable} naming the address and the reason
  void start();
  /// Of the bound socket; after start().
  uint16_t port() const;
  std::string url() const;
  /// Takes no new request, lets running answers end within the drain timeout, then ends the rest
  /// with an error that says so.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::http
