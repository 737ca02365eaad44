#include "tests/support/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace cohort::testing {

namespace {
constexpr std::chrono::milliseconds kPatience{10'000};
}

RawClient::RawClient(uint16_t port, int receive_buffer_bytes)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes > 0) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(int));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    ::close(socket_);
    throw std::runtime_error("cannot connect");
  }
}

RawClient::~RawClient() {
  close();
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::receive(std::chrono::milliseconds patience) {
  pollfd poll{.fd = socket_, .events = POLLIN, .revents = 0};
  if (::poll(&poll, 1, static_cast<int>(patience.count())) <= 0) return false;
  char buffer[16384];
  const ssize_t size = ::recv(socket_, buffer, sizeof(buffer), 0);
  if (size <= 0) return false;
  received_.append(buffer, static_cast<size_t>(size));
  return true;
}

std::string RawClient::read_until(std::string_view wanted) {
  size_t at = 0;
  while ((at = received_.find(wanted)) == std::string::npos) {
    if (!receive(kPatience)) return std::exchange(received_, {});
  }
  std::string result = received_.substr(0, at + wanted.size());
  received_.erase(0, result.size());
  return result;
}

RawResponse RawClient::read_response(bool head_only) {
  RawResponse response{.status = 0, .head = read_until("\r\n\r\n"), .body = {}};
  if (!response.head.ends_with("\r\n\r\n")) return response;
  const int status = std::atoi(response.head.c_str() + std::string_view("HTTP/1.1 ").size());
  const size_t length_at = response.head.find("Content-Length: ");
  if (head_only || status == 204) {
    // Nothing follows.
  } else if (response.head.find("Transfer-Encoding: chunked") != std::string::npos) {
    for (;;) {
      const std::string line = read_until("\r\n");
      if (!line.ends_with("\r\n")) return response;
      const size_t size = std::strtoul(line.c_str(), nullptr, 16);
      while (received_.size() < size + 2) {
        if (!receive(kPatience)) return response;
      }
      response.body += received_.substr(0, size);
      received_.erase(0, size + 2);
      if (size == 0) break;
    }
  } else if (length_at != std::string::npos) {
    const size_t size = std::strtoul(response.head.c_str() + length_at + 16, nullptr, 10);
    while (received_.size() < size) {
      if (!receive(kPatience)) return response;
    }
    response.body = received_.substr(0, size);
    received_.erase(0, size);
  } else {
    while (receive(kPatience)) continue;
    response.body = std::exchange(received_, {});
  }
  response.status = status;
  return response;
}

bool RawClient::closed_within(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  pollfd poll{.fd = socket_, .events = POLLIN, .revents = 0};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ::poll(&poll, 1, static_cast<int>(left.count())) <= 0) return false;
    char buffer[16384];
    if (::recv(socket_, buffer, sizeof(buffer), 0) <= 0) return true;
  }
}

void RawClient::close_writing() {
  ::shutdown(socket_, SHUT_WR);
}

void RawClient::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void RawClient::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close();
}

}  // namespace cohort::testing
