#include "http/server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/caller.h"
#include "http/connection.h"

namespace cohort::http {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

namespace {

constexpr auto kResult = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kLastWordsTime{500};  // for the error that ends a cut answer

Guard guard_of(const ServerOptions& options) {
  Guard guard{.hosts = options.allowed_hosts, .origins = options.allowed_origins};
  guard.hosts.push_back(options.host);
  for (const std::string& key : options.api_keys) guard.key_digests.push_back(digest_of(key));
  return guard;
}

/// How often deadlines are looked at: a small part of the shortest one.
std::chrono::milliseconds tick_of(const ServerOptions& options) {
  const auto shortest = std::min(
      {options.idle_timeout, options.header_timeout, options.body_timeout, options.write_timeout});
  return std::clamp(shortest / 4, std::chrono::milliseconds(5), std::chrono::milliseconds(1000));
}

/// The usual soft limit, 1,024, would let connections take the descriptors of everything else.
void raise_file_limit(size_t connections_max) {
  constexpr rlim_t kOtherFiles = 1024;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = std::max<rlim_t>(files.rlim_cur, connections_max + kOtherFiles);
  files.rlim_cur = std::min(files.rlim_max, wanted);
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

struct Server::Impl {
  Impl(std::vector<api::Route> routes, const ServerOptions& options)
      : shared{.options = options,
               .router = Router(std::move(routes)),
               .guard = guard_of(options),
               .handlers = asio::thread_pool(options.handler_threads),
               .large_handlers = asio::thread_pool(options.large_handler_threads)} {}

  void bind();
  asio::awaitable<void> accept();
  asio::awaitable<void> a_moment();
  /// Makes room for another connection; false if none is to be closed now.
  bool close_longest_waiting();
  asio::awaitable<void> watch_deadlines();
  void serve(tcp::socket socket);
  void forget(const std::shared_ptr<Connection>& connection, const std::exception_ptr& failure);
  bool wait_until_empty(std::chrono::milliseconds patience);
  void for_each_connection(std::function<void(Connection&)> act);

  Shared shared;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer retry{io};
  asio::steady_timer tick{io};
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::shared_ptr<Connection>> connections;  // io thread changes it, under mutex
};

void Server::Impl::bind() {
  const std::string& host = shared.options.host;
  boost::system::error_code error;
  tcp::resolver resolver(io);
  const auto addresses =
      resolver.resolve(host, std::to_string(shared.options.port), tcp::resolver::passive, error);
  if (!error) {
    const tcp::endpoint endpoint = addresses.begin()->endpoint();
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  }
  if (error) {
    fail(ErrorKind::kUnavailable, "cannot listen on {}:{}: {}", host, shared.options.port,
         error.message());
  }
}

asio::awaitable<void> Server::Impl::accept() {
  const auto full = [&] { return connections.size() >= shared.options.connections_max; };
  while (acceptor.is_open()) {
    auto [error, socket] = co_await acceptor.async_accept(kResult);
    if (error) {
      if (error != asio::error::no_descriptors || !close_longest_waiting()) co_await a_moment();
      continue;
    }
    while (acceptor.is_open() && full() && !close_longest_waiting()) co_await a_moment();
    if (acceptor.is_open()) serve(std::move(socket));
  }
}

asio::awaitable<void> Server::Impl::a_moment() {
  retry.expires_after(std::chrono::milliseconds(20));
  if (acceptor.is_open()) co_await retry.async_wait(kResult);
}

bool Server::Impl::close_longest_waiting() {
  std::vector<std::shared_ptr<Connection>> waiting;
  for (const auto& connection : connections) {
    if (connection->stage() != Connection::Stage::kAnswering) waiting.push_back(connection);
  }
  std::ranges::sort(waiting, {}, [](const auto& connection) {
    return std::pair(connection->stage(), connection->stage_since());
  });
  const auto closed =
      std::ranges::find_if(waiting, [](const auto& connection) { return connection->give_way(); });
  if (closed == waiting.end()) return false;
  std::lock_guard lock(mutex);
  connections.erase(*closed);  // at once, so that its room is seen
  return true;
}

void Server::Impl::serve(tcp::socket socket) {
  auto connection = std::make_shared<Connection>(std::move(socket), shared);
  {
    std::lock_guard lock(mutex);
    connections.insert(connection);
  }
  asio::co_spawn(io, connection->run(), [this, connection](const std::exception_ptr& failure) {
    forget(connection, failure);
  });
}

void Server::Impl::forget(const std::shared_ptr<Connection>& connection,
                          const std::exception_ptr& failure) {
  if (failure) shared.options.log("a connection was dropped after an internal failure");
  std::lock_guard lock(mutex);
  connections.erase(connection);
  changed.notify_all();
}

asio::awaitable<void> Server::Impl::watch_deadlines() {
  for (;;) {
    tick.expires_after(tick_of(shared.options));
    co_await tick.async_wait(asio::use_awaitable);
    const auto now = std::chrono::steady_clock::now();
    for (const auto& connection : connections) connection->check_deadline(now);
  }
}

bool Server::Impl::wait_until_empty(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, patience, [&] { return connections.empty(); });
}

void Server::Impl::for_each_connection(std::function<void(Connection&)> act) {
  asio::post(io, [this, act = std::move(act)] {
    for (const auto& connection : connections) act(*connection);
  });
}

Server::Server(std::vector<api::Route> routes, const ServerOptions& options)
    : impl_(std::make_unique<Impl>(std::move(routes), options)) {}

// NOLINTNEXTLINE(bugprone-exception-escape): a mutex or a join that fails leaves nothing to save.
Server::~Server() {
  stop();
}

void Server::start() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a failed write
  raise_file_limit(impl_->shared.options.connections_max);
  impl_->bind();
  asio::co_spawn(impl_->io, impl_->accept(), asio::detached);
  asio::co_spawn(impl_->io, impl_->watch_deadlines(), asio::detached);
  impl_->thread = std::thread([impl = impl_.get()] { impl->io.run(); });
}

uint16_t Server::port() const {
  return impl_->acceptor.local_endpoint().port();
}

std::string Server::url() const {
  const std::string& host = impl_->shared.options.host;
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}", v6 ? "[" + host + "]" : host, port());
}

void Server::stop() {
  if (!impl_->thread.joinable()) return;
  asio::post(impl_->io, [impl = impl_.get()] {
    impl->shared.draining = true;
    boost::system::error_code ignored;
    impl->acceptor.close(ignored);
  });
  impl_->for_each_connection(&Connection::close_if_idle);
  if (!impl_->wait_until_empty(impl_->shared.options.drain_timeout)) {
    impl_->for_each_connection(&Connection::end_answer);
    if (!impl_->wait_until_empty(kLastWordsTime)) impl_->for_each_connection(&Connection::close);
    // Only a handler that is still running can hold a connection now.
    impl_->wait_until_empty(std::chrono::milliseconds(5000));
  }
  impl_->shared.handlers.join();
  impl_->shared.large_handlers.join();
  impl_->io.stop();
  impl_->thread.join();
}

}  // namespace cohort::http
