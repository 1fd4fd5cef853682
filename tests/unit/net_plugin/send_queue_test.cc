// The kernel's send queue is bounded on short paths, and nowhere else.
#include "net_plugin/socket/send_queue.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "reconfig/base/unique_fd.h"
#include "tests/unit/net_plugin/proxy.h"
#include "tests/unit/net_plugin/socket_ends.h"

namespace rewire::net {
namespace {

int BufferOf(int fd) {
  int size = 0;
  socklen_t bytes = sizeof size;
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &bytes), 0);
  return size;
}

TEST(SendQueueTest, BoundsOnlyShortRoundTrips) {
  EXPECT_EQ(SendBufferOf(0), 256 << 10);
  EXPECT_EQ(SendBufferOf(10), 256 << 10);
  EXPECT_EQ(SendBufferOf(11), std::nullopt);
  EXPECT_EQ(SendBufferOf(UINT32_MAX), std::nullopt);  // TCP's value for "not measured yet"
}

TEST(SendQueueTest, MeasuresFullStream) {
  const UniqueFd plain(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int size = *SendBufferOf(0);
  ASSERT_EQ(setsockopt(plain.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
  const int whole = BufferOf(plain.get());  // the size that this kernel chooses
  // On a busy machine a round trip may be long, but not in every attempt.
  for (int attempt = 0; attempt < 20; ++attempt) {
    net_test::SocketEnds ends;
    ASSERT_NO_FATAL_FAILURE(ends.Join(2));
    const std::vector<char> out(32 << 20);
    std::vector<char> in(out.size());
    Request* const receive = ends.Receive(&in);
    Request* const send = ends.Send(out);
    bool come = false;
    bool gone = false;
    const Time deadline = net_test::Soon();
    while (!(come && gone)) {
      ASSERT_LT(Now(), deadline);
      gone = gone || net_test::SocketEnds::Done(ends.sender.get(), send);
      come = come || net_test::SocketEnds::Done(ends.receiver.get(), receive);
    }
    if (BufferOf(ends.from(0)) == whole && BufferOf(ends.from(1)) == whole) return;
  }
  FAIL() << "no link was bounded";
}

TEST(SendQueueTest, DoesNotChangeOtherSockets) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd one(ends[0]);
  const UniqueFd other(ends[1]);
  const int before = BufferOf(one.get());
  EXPECT_FALSE(BoundSendQueue(one.get()));
  EXPECT_EQ(BufferOf(one.get()), before);
}

}  // namespace
}  // namespace rewire::net
