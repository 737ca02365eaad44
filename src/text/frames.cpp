#include "text/frames.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace cohort::text {
namespace {

#ifdef MSG_NOSIGNAL
constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
#else
constexpr int kFlags = MSG_DONTWAIT;  // the socket has SO_NOSIGPIPE
#endif

struct Header {
  int64_t status;
  uint64_t bytes;
};

/// Waits until the socket can be read or written, or has ended.
///   returns  false at the deadline
bool wait_for(int socket, short event, Deadline deadline) {
  using std::chrono::milliseconds;
  for (;;) {
    const auto left = deadline - std::chrono::steady_clock::now();
    const auto wait = std::clamp<std::chrono::nanoseconds>(left, {}, std::chrono::hours(1));
    pollfd waiting{.fd = socket, .events = event, .revents = 0};
    const auto wait_ms = std::chrono::ceil<milliseconds>(wait).count();
    if (::poll(&waiting, 1, static_cast<int>(wait_ms)) > 0) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

/// Calls `move(done)`, which is recv or send from there on, until all bytes are through.
template <class Move>
Transfer transfer(int socket, short event, size_t bytes, Deadline deadline, const Move& move) {
  for (size_t done = 0; done < bytes;) {
    if (!wait_for(socket, event, deadline)) return Transfer::kLate;
    const ssize_t moved = move(done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return Transfer::kEnded;
    }
  }
  return Transfer::kDone;
}

Transfer receive(int socket, void* to, size_t bytes, Deadline deadline) {
  return transfer(socket, POLLIN, bytes, deadline, [&](size_t done) {
    return ::recv(socket, static_cast<char*>(to) + done, bytes - done, kFlags);
  });
}

}  // namespace

Transfer send_frame(int socket, int64_t status, std::string_view bytes, Deadline deadline) {
  const Header header{.status = status, .bytes = bytes.size()};
  std::string all(reinterpret_cast<const char*>(&header), sizeof header);
  all += bytes;  // in one piece, which wakes the reader once
  return transfer(socket, POLLOUT, all.size(), deadline, [&](size_t done) {
    return ::send(socket, all.data() + done, all.size() - done, kFlags);
  });
}

Transfer receive_frame(int socket, Frame& frame, uint64_t bytes_max, Deadline deadline) {
  Header header{};
  const Transfer begun = receive(socket, &header, sizeof header, deadline);
  if (begun != Transfer::kDone) return begun;
  if (header.bytes > bytes_max) return Transfer::kTooLong;
  frame.status = header.status;
  frame.bytes.resize(header.bytes);
  return receive(socket, frame.bytes.data(), frame.bytes.size(), deadline);
}

bool is_quiet(int socket) {
  pollfd state{.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&state, 1, 0) == 0;
}

}  // namespace cohort::text
