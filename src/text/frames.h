#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

// Messages over a stream socket between a process and its child: a status, a size and bytes.

namespace cohort::text {

using Deadline = std::chrono::steady_clock::time_point;

enum class Transfer {
  kDone,
  kEnded,    // the other side is gone
  kTooLong,  // it began a frame that nobody wants
  kLate,
};

struct Frame {
  int64_t status = 0;
  std::string bytes;
};

/// Neither raises SIGPIPE. One thread at a time per socket.
Transfer send_frame(int socket, int64_t status, std::string_view bytes, Deadline deadline);
///   bytes_max  of a longer frame only the head is taken
Transfer receive_frame(int socket, Frame& frame, uint64_t bytes_max, Deadline deadline);

/// Whether the other side is there and has sent nothing.
bool is_quiet(int socket);

}  // namespace cohort::text
