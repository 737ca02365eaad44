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
  // Of large bodies: nobody else waits behind them, and few are taken apart at a time.
  boost::asio::thread_pool large_handlers;
  // io thread
  bool draining = false;
  uint64_t bodies_bytes = 0;  // of bodies that are being read or handled
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
  /// What it waits for: a request; the rest of one, or that its refusal is read; its own answer.
  enum class Stage { kIdle, kArriving, kAnswering };
  Stage stage() const { return stage_; }
  std::chrono::steady_clock::time_point stage_since() const { return stage_since_; }
  /// Closes the socket unless a request is there, or has just begun to arrive.
  ///   returns  whether it is closed
  bool close_if_idle();
  /// For another connection: closes an idle one, and one whose request arrives too slowly.
  ///   returns  whether it is closed
  bool give_way();
  /// Ends a running answer with an error that says so; closes what has none.
  void end_answer();
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
  Awaitable<api::Outcome> handle(Exchange& exchange, const Match& match);
  /// Takes all events of a whole answer; false if the client could not be written to.
  Awaitable<bool> collect(Consumer& consumer, api::Events& all);
  Awaitable<bool> pump(const Exchange& exchange, Consumer& consumer, const api::Streamed& streamed,
                       bool chunked);
  Awaitable<bool> write(const std::string& bytes);

  /// Runs `work`, which takes from `consumer`, while watching the client.
  ///   returns  its result; false if the client went away first: `work` is cancelled then
  Awaitable<bool> unless_gone(Awaitable<bool> work, Consumer& consumer, bool can_probe);
  /// Returns when the client is gone. What it sends meanwhile is kept for the next request; more
  /// than a head's worth of it counts as gone.
  ///   probes  The end of what it sends does not tell a client that has left from one that waits
  ///           for the answer with its sending side closed: only the former's system answers what
  ///           is sent to it by a reset. So the work sends a harmless piece then, and again at each
  ///           comment interval: a comment in a stream, 100 Continue before a whole answer.
  ///           HTTP/1.0 has nothing harmless before a whole answer: the end counts as gone there.
  Awaitable<void> client_gone(Consumer& consumer, bool can_probe);
  /// Lets a client that is still sending read its reply: discards input for a moment.
  Awaitable<void> linger();
  void enter(Stage stage);
  void set_deadline(std::chrono::milliseconds from_now);
  void clear_deadline();

  boost::asio::ip::tcp::socket socket_;
  Shared& shared_;
  boost::beast::flat_buffer buffer_;  // read from the socket, not yet parsed
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  Stage stage_ = Stage::kIdle;
  std::chrono::steady_clock::time_point stage_since_ = std::chrono::steady_clock::now();
  bool sends_no_more_ = false;
  Consumer* consumer_ = nullptr;  // of the running answer
};

}  // namespace cohort::http
