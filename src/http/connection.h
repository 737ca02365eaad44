#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "http/guard.h"
#include "http/router.h"
#include "http/server.h"

namespace cohort::http {

class Consumer;

/// What all connections of a server share.
struct Shared {
  const ServerOptions options;
  const Router router;
  const Guard guard;
  boost::asio::thread_pool handlers;
  // io thread
  bool draining = false;
  uint64_t bodies_bytes = 0;  // reserved for bodies that are being read or handled
};

/// One client: reads requests one after the other and answers each before the next.
///   thread  io
class Connection {
 public:
  Connection(boost::asio::ip::tcp::socket socket, Shared& shared);

  /// Serves until the client leaves, a deadline passes, or the server drains.
  boost::asio::awaitable<void> run();
  /// Closes the socket if what it is doing has taken too long.
  void check_deadline(std::chrono::steady_clock::time_point now);
  void close_if_idle();
  void close();

 private:
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;
  struct Exchange;  // a request being answered

  // Each returns whether the connection may take another request.
  Awaitable<bool> serve_one();
  Awaitable<bool> answer(Exchange& exchange);
  Awaitable<bool> send(const Exchange& exchange, api::Reply reply);
  Awaitable<bool> send(const Exchange& exchange, api::Deferred deferred);
  Awaitable<bool> send(const Exchange& exchange, api::Streamed streamed);

  /// Reads the body into the exchange's parser.
  ///   returns  the reply to a body that is refused
  Awaitable<std::optional<api::Reply>> read_body(Exchange& exchange);
  Awaitable<api::Outcome> handle(const Match& match, std::string body);
  Awaitable<api::Events> collect(Consumer& consumer);
  Awaitable<bool> pump(Consumer& consumer, const api::Streamed& streamed, bool chunked);
  Awaitable<bool> write(const std::string& bytes);

  /// Runs `work` while watching the client.
  ///   returns  nothing if the client went away first; `work` is cancelled then
  template <class T>
  Awaitable<std::optional<T>> unless_gone(Awaitable<T> work);
  /// Returns when the client has closed its side. What it sends meanwhile is kept for the next
  /// request; more than a head's worth of it counts as gone.
  Awaitable<void> client_gone();
  /// Lets a client that is still sending read its reply: discards input for a moment.
  Awaitable<void> linger();
  void set_deadline(std::chrono::milliseconds from_now);
  void clear_deadline();

  boost::asio::ip::tcp::socket socket_;
  Shared& shared_;
  boost::beast::flat_buffer buffer_;  // read from the socket, not yet parsed
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  bool idle_ = true;  // no byte of a request has arrived
};

}  // namespace cohort::http
