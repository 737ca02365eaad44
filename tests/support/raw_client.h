#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::testing {

struct RawResponse {
  int status = 0;  // 0 = the connection ended before a whole response
  std::string head;
  std::string body;  // without chunk framing
};

/// A socket that sends exactly the bytes it is given. Reads give up after `patience`.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  /// False when the server has closed.
  bool send(std::string_view bytes);
  /// One response by Content-Length, by chunks, or to the end of the connection.
  RawResponse read_response(bool head_only = false);
  /// What arrives until `wanted` has been seen (included), or the end.
  std::string read_until(std::string_view wanted);
  /// The server closes (or has closed) within `patience`.
  bool closed_within(std::chrono::milliseconds patience);
  void close_writing();
  void close();
  /// Closes with a reset instead of a goodbye.
  void reset();

 private:
  bool receive(std::chrono::milliseconds patience);

  int socket_;
  std::string received_;
};

}  // namespace cohort::testing
