#include "http/connection.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <iterator>
#include <utility>

#include "api/error_body.h"
#include "base/error.h"
#include "base/system_memory.h"
#include "http/caller.h"
#include "http/consumer.h"

namespace cohort::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace wire = boost::beast::http;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kResult = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kLingerTime{2000};
constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kLargeBody = 256 << 10;
constexpr size_t kHugeBody = 4 << 20;  // what it took to read it is worth giving back at once
const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

/// The reply to a request that cannot be parsed; nothing if the client has just gone.
std::optional<api::Reply> reply_to(const beast::error_code& error, const ServerOptions& options) {
  if (error == wire::error::header_limit || error == wire::error::buffer_overflow) {
    return api::error_reply(431, "the request head is too large", "", "head_too_large");
  }
  if (error == wire::error::body_limit) {
    const uint64_t most_mb = options.body_bytes_max >> 20;
    return api::error_reply(
        413, fmt::format("the request body has more than {} MB (--body-limit-mb)", most_mb), "",
        "body_too_large");
  }
  const bool closed = error == wire::error::end_of_stream || error == wire::error::partial_message;
  if (closed || error.category() != wire::make_error_code(wire::error::bad_target).category()) {
    return std::nullopt;
  }
  return api::error_reply(400, "malformed HTTP: " + error.message(), "", "malformed_http");
}

/// A header that may occur once. Repeated, it is empty, which no check lets through.
template <class Fields, class Name>
std::optional<std::string_view> header(const Fields& fields, Name name) {
  const auto found = fields.find(name);
  if (found == fields.end()) return std::nullopt;
  if (fields.count(name) > 1) return "";
  return found->value();
}

/// The answer says that it has failed.
bool failed(const engine::TokenEvent& event) {
  return event.finish == engine::FinishReason::kError ||
         event.finish == engine::FinishReason::kCancelled;
}

}  // namespace

/// A request being answered.
struct Connection::Exchange {
  explicit Exchange(Shared& server) : shared(server) {
    parser.header_limit(static_cast<uint32_t>(server.options.header_bytes_max));
    parser.body_limit(server.options.body_bytes_max);
  }
  ~Exchange() { shared.bodies_bytes -= body_bytes; }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const wire::request<wire::string_body>& request() const { return parser.get(); }
  RequestHead head() const;
  std::string_view key() const {
    return key_of(header(request(), wire::field::authorization), header(request(), "x-api-key"));
  }
  /// The request as its handler sees it; takes the body.
  api::Call call(const Match& match);
  /// Sets what all responses of this exchange have in common.
  template <class Body>
  void prepare(wire::response<Body>& response) const;
  /// Notes that a part of the answer was written from `begin` until now.
  void note_write(const char* name, TraceClock::time_point begin) const {
    if (trace) trace->add({.name = name, .begin = begin, .end = TraceClock::now()});
  }
  /// Notes that all of the answer was.
  void note_end(bool success) const {
    if (trace) trace->set_outcome(success ? TraceOutcome::kSuccess : TraceOutcome::kError);
  }
  bool keep_alive() const {
    return parser.is_header_done() && parser.is_done() && request().keep_alive() &&
           !shared.draining;
  }

  Shared& shared;
  wire::request_parser<wire::string_body> parser;
  uint64_t body_bytes = 0;  // that have arrived, of all bodies' share
  bool trusted = false;     // the guard let it in, so its Origin may read the answer
  std::string request_id;
  std::shared_ptr<Trace> trace;  // null = off
};

RequestHead Connection::Exchange::head() const {
  const auto& fields = request();
  RequestHead head{.method = fields.method_string(),
                   .target = fields.target(),
                   .http_1_1 = fields.version() >= 11,
                   .hosts = {},
                   .origin = header(fields, wire::field::origin),
                   .content_type = header(fields, wire::field::content_type),
                   .content_encoding = header(fields, wire::field::content_encoding),
                   .transfer_encoding = header(fields, wire::field::transfer_encoding),
                   .key = key()};
  const auto [begin, end] = fields.equal_range(wire::field::host);
  for (auto host = begin; host != end; ++host) head.hosts.push_back(host->value());
  return head;
}

api::Call Connection::Exchange::call(const Match& match) {
  const auto& fields = request();
  api::Call call{.body = {},
                 .path_rest = match.path_rest,
                 .request_id = request_id,
                 .own_request_id = is_request_id(header(fields, "X-Request-Id")),
                 .client = client_of(key()),
                 .trace = trace};
  if (const auto priority = header(fields, "X-Priority")) call.priority = *priority;
  call.session = session_of(header(fields, "x-session-affinity"), header(fields, "session_id"));
  call.body = std::move(parser.get().body());
  return call;
}

template <class Body>
void Connection::Exchange::prepare(wire::response<Body>& response) const {
  response.version(parser.is_header_done() ? request().version() : 11);
  response.set(wire::field::server, "cohort");
  response.set("X-Request-Id", request_id);
  response.keep_alive(keep_alive());
  const auto origin = header(request(), wire::field::origin);
  if (!trusted || !origin) return;
  response.set(wire::field::access_control_allow_origin, *origin);
  response.set(wire::field::access_control_expose_headers, "X-Request-Id, Retry-After");
  response.set(wire::field::vary, "Origin");
  if (request().method() != wire::verb::options) return;
  response.set(wire::field::access_control_allow_methods, response[wire::field::allow]);
  response.set(wire::field::access_control_allow_headers,
               request()[wire::field::access_control_request_headers]);
  response.set(wire::field::access_control_max_age, "600");
}

Connection::Connection(asio::ip::tcp::socket socket, Shared& shared)
    : socket_(std::move(socket)),
      shared_(shared),
      buffer_(shared.options.header_bytes_max + kReadBytes) {}

asio::awaitable<void> Connection::run() {
  beast::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  bool open = true;
  while (open && !shared_.draining) open = co_await serve_one();
  if (socket_.is_open()) co_await linger();
}

asio::awaitable<bool> Connection::serve_one() {
  enter(Stage::kIdle);
  set_deadline(shared_.options.idle_timeout);
  if (buffer_.size() == 0) {
    const auto [error] = co_await socket_.async_wait(asio::socket_base::wait_read, kResult);
    if (error) co_return false;
  }
  enter(Stage::kArriving);
  set_deadline(shared_.options.header_timeout);
  Exchange exchange(shared_);
  const auto [error, size] =
      co_await wire::async_read_header(socket_, buffer_, exchange.parser, kResult);
  exchange.request_id = request_id_of(header(exchange.request(), "X-Request-Id"));
  if (!error) co_return co_await answer(exchange);
  auto reply = reply_to(error, shared_.options);
  if (!reply) {
    close();
    co_return false;
  }
  co_await send(exchange, std::move(*reply));
  co_return false;
}

asio::awaitable<bool> Connection::answer(Exchange& exchange) {
  const RequestHead head = exchange.head();
  if (auto refusal = shared_.guard.refuse(head)) {
    co_return co_await send(exchange, std::move(*refusal));
  }
  exchange.trusted = true;
  if (auto refusal = shared_.guard.refuse_trusted(head)) {
    co_return co_await send(exchange, std::move(*refusal));
  }
  auto found = shared_.router.find(head.method, head.target);
  if (auto* reply = std::get_if<api::Reply>(&found)) {
    co_return co_await send(exchange, std::move(*reply));
  }
  const auto& match = std::get<Match>(found);
  if (match.route->traced && shared_.options.tracer != nullptr) {
    exchange.trace =
        shared_.options.tracer->begin(header(exchange.request(), "traceparent").value_or(""),
                                      exchange.request_id, match.route->path);
  }
  auto refusal = co_await read_body(exchange);
  if (refusal) co_return co_await send(exchange, std::move(*refusal));
  if (!exchange.parser.is_done()) co_return false;  // the client left in the middle
  clear_deadline();
  enter(Stage::kAnswering);
  api::Outcome outcome = co_await handle(exchange, match);
  if (auto* reply = std::get_if<api::Reply>(&outcome)) {
    co_return co_await send(exchange, std::move(*reply));
  }
  if (auto* deferred = std::get_if<api::Deferred>(&outcome)) {
    co_return co_await send(exchange, std::move(*deferred));
  }
  co_return co_await send(exchange, std::move(std::get<api::Streamed>(outcome)));
}

asio::awaitable<std::optional<api::Reply>> Connection::read_body(Exchange& exchange) {
  auto& parser = exchange.parser;
  if (parser.is_done()) co_return std::nullopt;
  set_deadline(shared_.options.body_timeout);
  if (const auto expected = header(exchange.request(), wire::field::expect)) {
    if (!beast::iequals(*expected, "100-continue")) {
      co_return api::error_reply(417, "only Expect: 100-continue is supported");
    }
    if (!co_await write(kContinue)) co_return std::nullopt;
    set_deadline(shared_.options.body_timeout);
  }
  while (!parser.is_done()) {
    const auto [error, size] = co_await wire::async_read_some(socket_, buffer_, parser, kResult);
    if (error) co_return reply_to(error, shared_.options);
    // As it arrives: who announces much and sends little takes no room from others.
    const uint64_t arrived = parser.get().body().size();
    shared_.bodies_bytes += arrived - exchange.body_bytes;
    exchange.body_bytes = arrived;
    if (shared_.bodies_bytes > shared_.options.all_bodies_bytes_max) {
      co_return api::error_reply(
          Error(ErrorKind::kOverloaded, "too many large requests at once: try again later"));
    }
  }
  co_return std::nullopt;
}

asio::awaitable<api::Outcome> Connection::handle(Exchange& exchange, const Match& match) {
  api::Call call = exchange.call(match);
  std::string failure;
  const auto run = [&] { return shared_.router.run(*match.route, call, failure); };
  const size_t bytes = call.body.size();
  auto work = [&]() -> asio::awaitable<api::Outcome> {
    api::Outcome outcome = run();
    if (bytes > kHugeBody) {
      std::string().swap(call.body);
      return_freed_memory();
    }
    co_return outcome;
  };
  api::Outcome outcome;
  if (match.route->work == api::Work::kQuick) {
    outcome = run();
  } else {
    auto& handlers = bytes > kLargeBody ? shared_.large_handlers : shared_.handlers;
    outcome = co_await asio::co_spawn(handlers, work, asio::use_awaitable);
  }
  if (!failure.empty()) {
    shared_.options.log(fmt::format("{} {}: {}", match.route->method, match.route->path, failure));
  }
  co_return outcome;
}

asio::awaitable<bool> Connection::send(const Exchange& exchange, api::Reply reply) {
  wire::response<wire::string_body> response;
  response.result(static_cast<unsigned>(reply.status));
  for (const auto& [name, value] : reply.headers) response.set(name, value);
  if (!reply.body.empty()) response.set(wire::field::content_type, reply.content_type);
  response.body() = std::move(reply.body);
  response.prepare_payload();
  if (reply.status == 204) response.content_length(boost::none);
  exchange.prepare(response);
  wire::response_serializer<wire::string_body> serializer(response);
  const auto begin = TraceClock::now();
  set_deadline(shared_.options.write_timeout);
  beast::error_code failure;
  if (exchange.request().method() == wire::verb::head) {
    const auto [error, size] = co_await wire::async_write_header(socket_, serializer, kResult);
    failure = error;
  } else {
    const auto [error, size] = co_await wire::async_write(socket_, serializer, kResult);
    failure = error;
  }
  clear_deadline();
  if (failure) co_return false;
  exchange.note_write("response.first_write", begin);
  exchange.note_write("response.last_write", begin);
  exchange.note_end(reply.status < 400);
  co_return response.keep_alive();
}

asio::awaitable<bool> Connection::send(const Exchange& exchange, api::Deferred deferred) {
  Consumer consumer(socket_.get_executor(), deferred.stream);
  const bool can_probe = exchange.request().version() >= 11;
  api::Events all;
  const bool complete = co_await unless_gone(collect(consumer, all), consumer, can_probe);
  if (!complete) {
    close();
    co_return false;
  }
  co_return co_await send(exchange, deferred.complete(all));
}

asio::awaitable<bool> Connection::send(const Exchange& exchange, api::Streamed streamed) {
  Consumer consumer(socket_.get_executor(), streamed.stream);
  wire::response<wire::empty_body> response;
  response.set(wire::field::content_type, "text/event-stream; charset=utf-8");
  response.set(wire::field::cache_control, "no-cache");
  response.set("X-Accel-Buffering", "no");
  exchange.prepare(response);
  const bool chunked = response.version() >= 11;
  response.chunked(chunked);
  if (!chunked) response.keep_alive(false);  // the end of the connection is the end of the body
  wire::response_serializer<wire::empty_body> serializer(response);
  set_deadline(shared_.options.write_timeout);
  const auto [error, size] = co_await wire::async_write_header(socket_, serializer, kResult);
  clear_deadline();
  if (error) co_return false;
  const bool complete =
      co_await unless_gone(pump(exchange, consumer, streamed, chunked), consumer, true);
  if (!complete) {
    close();
    co_return false;
  }
  co_return response.keep_alive();
}

asio::awaitable<bool> Connection::collect(Consumer& consumer, api::Events& all) {
  while (!consumer.finished()) {
    api::Events arrived = co_await consumer.next(shared_.options.stream_comment_interval);
    const bool probe = arrived.empty() && sends_no_more_;
    if (probe && !co_await write(kContinue)) co_return false;
    all.insert(all.end(), std::make_move_iterator(arrived.begin()),
               std::make_move_iterator(arrived.end()));
  }
  co_return true;
}

asio::awaitable<bool> Connection::pump(const Exchange& exchange, Consumer& consumer,
                                       const api::Streamed& streamed, bool chunked) {
  bool begun = false;
  while (!consumer.finished()) {
    const api::Events arrived = co_await consumer.next(shared_.options.stream_comment_interval);
    std::string bytes = arrived.empty() ? ": waiting\n\n" : streamed.format(arrived);
    if (chunked && !bytes.empty()) bytes = fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
    if (chunked && consumer.finished()) bytes += "0\r\n\r\n";
    if (bytes.empty()) continue;
    const auto begin = TraceClock::now();
    if (!co_await write(bytes)) co_return false;
    if (arrived.empty()) continue;
    if (!begun) exchange.note_write("response.first_write", begin);
    begun = true;
    if (consumer.finished()) {
      exchange.note_write("response.last_write", begin);
      exchange.note_end(!failed(arrived.back()));
    }
  }
  co_return true;
}

asio::awaitable<bool> Connection::write(const std::string& bytes) {
  set_deadline(shared_.options.write_timeout);
  const auto [error, size] = co_await asio::async_write(socket_, asio::buffer(bytes), kResult);
  clear_deadline();
  co_return !error;
}

asio::awaitable<bool> Connection::unless_gone(asio::awaitable<bool> work, Consumer& consumer,
                                              bool can_probe) {
  const auto executor = socket_.get_executor();
  consumer_ = &consumer;
  auto group = asio::experimental::make_parallel_group(
      asio::co_spawn(executor, std::move(work), asio::deferred),
      asio::co_spawn(executor, client_gone(consumer, can_probe), asio::deferred));
  auto [order, work_failure, result, watch_failure] =
      co_await group.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
  consumer_ = nullptr;
  if (order[0] == 1) co_return false;
  if (work_failure) std::rethrow_exception(work_failure);
  co_return result;
}

asio::awaitable<void> Connection::client_gone(Consumer& consumer, bool can_probe) {
  while (buffer_.size() < shared_.options.header_bytes_max) {
    const auto [error, size] = co_await socket_.async_read_some(buffer_.prepare(4096), kResult);
    buffer_.commit(size);
    sends_no_more_ = error == asio::error::eof;
    if (sends_no_more_ && can_probe) {
      consumer.nudge();
      co_await socket_.async_wait(asio::socket_base::wait_error, kResult);  // the reset
    }
    if (error) co_return;
  }
}

asio::awaitable<void> Connection::linger() {
  beast::error_code failed;
  socket_.shutdown(asio::socket_base::shutdown_send, failed);
  set_deadline(kLingerTime);
  while (!failed) {
    buffer_.clear();
    const auto [error, size] =
        co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kResult);
    failed = error;
  }
  close();
}

void Connection::set_deadline(std::chrono::milliseconds from_now) {
  deadline_ = Clock::now() + from_now;
}

void Connection::clear_deadline() {
  deadline_ = Clock::time_point::max();
}

void Connection::check_deadline(Clock::time_point now) {
  if (now >= deadline_) close();
}

void Connection::enter(Stage stage) {
  stage_ = stage;
  stage_since_ = Clock::now();
}

bool Connection::close_if_idle() {
  beast::error_code ignored;
  if (stage_ != Stage::kIdle || socket_.available(ignored) > 0) return false;
  close();
  return true;
}

bool Connection::give_way() {
  if (stage_ != Stage::kArriving) return close_if_idle();
  if (Clock::now() < stage_since_ + shared_.options.arrival_time) return false;
  close();
  return true;
}

void Connection::end_answer() {
  if (consumer_ == nullptr) return close();
  consumer_->end({.finish = engine::FinishReason::kCancelled});
}

void Connection::close() {
  beast::error_code ignored;
  socket_.close(ignored);
}

}  // namespace cohort::http
