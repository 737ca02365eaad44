#include "text/frames.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace cohort::text {
namespace {

class Frames : public testing::Test {
 protected:
  Frames() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  ~Frames() override {
    close_other();
    ::close(ends_[1]);
  }
  void send(std::string_view bytes) {
    EXPECT_EQ(send_frame(ends_[0], 7, bytes, soon()), Transfer::kDone);
  }
  Transfer receive(uint64_t bytes_max) {
    return receive_frame(ends_[1], frame_, bytes_max, soon());
  }
  void close_other() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  static Deadline soon() {
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  }

  int ends_[2] = {-1, -1};
  Frame frame_;
};

TEST_F(Frames, ArriveAsTheyWereSent) {
  send(std::string("a\0b", 3));
  send("");
  EXPECT_EQ(receive(3), Transfer::kDone);
  EXPECT_EQ(frame_.status, 7);
  EXPECT_EQ(frame_.bytes, std::string("a\0b", 3));
  EXPECT_FALSE(is_quiet(ends_[1]));
  EXPECT_EQ(receive(0), Transfer::kDone);
  EXPECT_TRUE(frame_.bytes.empty());
  EXPECT_TRUE(is_quiet(ends_[1]));
}

TEST_F(Frames, SayWhyTheyDoNotArrive) {
  EXPECT_EQ(receive(9), Transfer::kLate);
  send("0123456789");
  EXPECT_EQ(receive(9), Transfer::kTooLong) << "and not that the sender is gone";
}

TEST_F(Frames, EndWithTheirSender) {
  EXPECT_EQ(::send(ends_[0], "half", 4, 0), 4);  // of a head
  close_other();
  EXPECT_EQ(receive(9), Transfer::kEnded);
}

}  // namespace
}  // namespace cohort::text
