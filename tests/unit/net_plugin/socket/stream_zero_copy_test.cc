// Memory lent to the kernel: the completion of a message, and a close before the completion. Over
// the loopback interface the kernel finally copies the data, and reports the copy.
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "tests/unit/net_plugin/proxy.h"
#include "tests/unit/net_plugin/socket_ends.h"

namespace rewire::net {
namespace {

using net_test::Pattern;
using net_test::SocketEnds;

// More than a receiver's kernel accepts before anybody reads, less than a sender's.
constexpr size_t kHeldBack = 320 << 10;

class ZeroCopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ends_.Join(1));
    const int room = 1 << 20;
    ASSERT_EQ(setsockopt(ends_.from(0), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    const int little = 64 << 10;  // and no more after it is read
    ASSERT_EQ(setsockopt(ends_.to(0), SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
  }
  // Returns whether all bytes of the message have left the program.
  [[nodiscard]] bool KernelHas(size_t bytes) const {
    int unacknowledged = 0;
    int unread = 0;
    ioctl(ends_.from(0), SIOCOUTQ, &unacknowledged);
    ioctl(ends_.to(0), FIONREAD, &unread);
    return static_cast<size_t>(unacknowledged) + static_cast<size_t>(unread) >= bytes;
  }
  // A message completes for its sender although nobody reads: it was copied.
  void ExpectCopied(uint64_t seed) {
    const std::vector<char> bytes = Pattern(kHeldBack, seed);
    std::vector<char> copy = bytes;
    ASSERT_TRUE(SocketEnds::Wait(ends_.sender.get(), ends_.Send(copy)).ok());
    std::memset(copy.data(), 0, copy.size());
    std::vector<char> got(bytes.size());
    ASSERT_TRUE(SocketEnds::Wait(ends_.receiver.get(), ends_.Receive(&got)).ok());
    EXPECT_TRUE(got == bytes);
  }

  SocketEnds ends_;
};

TEST_F(ZeroCopyTest, CompletesMessageAfterKernelReportsCompletion) {
  const std::vector<char> bytes = Pattern(kHeldBack, 1);
  Request* const send = ends_.Send(bytes);
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(SocketEnds::Done(ends_.sender.get(), send));
  ASSERT_TRUE(KernelHas(bytes.size()));
  std::vector<char> got(bytes.size());
  ASSERT_TRUE(SocketEnds::Wait(ends_.receiver.get(), ends_.Receive(&got)).ok());
  ASSERT_TRUE(SocketEnds::Wait(ends_.sender.get(), send).ok());
  EXPECT_TRUE(got == bytes);
  // The kernel has reported that it copied the data.
  ExpectCopied(2);
}

TEST_F(ZeroCopyTest, CompletesMessagesInOrder) {
  constexpr size_t kCount = 4;
  std::array<std::vector<char>, kCount> sent;
  std::array<Request*, kCount> sends{};
  for (size_t i = 0; i < kCount; ++i) {
    sent[i] = Pattern(100 << 10, i + 1);
    sends[i] = ends_.Send(sent[i]);
  }
  const auto look = [&] {
    for (size_t last = kCount; last-- > 0;) {
      if (sends[last] == nullptr || !SocketEnds::Done(ends_.sender.get(), sends[last])) continue;
      sends[last] = nullptr;
      std::memset(sent[last].data(), 0, sent[last].size());
      for (size_t earlier = 0; earlier < last; ++earlier) {
        if (sends[earlier] == nullptr) continue;
        EXPECT_TRUE(SocketEnds::Done(ends_.sender.get(), sends[earlier])) << earlier << last;
        sends[earlier] = nullptr;
      }
    }
  };
  for (size_t i = 0; i < kCount; ++i) {
    look();
    std::vector<char> got(100 << 10);
    Request* const receive = ends_.Receive(&got);
    const Time deadline = net_test::Soon();
    while (!SocketEnds::Done(ends_.receiver.get(), receive)) {
      look();
      ASSERT_LT(Now(), deadline);
    }
    EXPECT_TRUE(got == Pattern(100 << 10, i + 1)) << i;
  }
  for (Request* send : sends) {
    if (send == nullptr) continue;
    EXPECT_TRUE(SocketEnds::Wait(ends_.sender.get(), send).ok());
  }
}

// Bytes that the program writes there after the close must not reach anybody.
TEST_F(ZeroCopyTest, CloseStopsPendingZeroCopySends) {
  std::vector<char> bytes = Pattern(kHeldBack, 1);
  Request* const send = ends_.Send(bytes);
  ASSERT_FALSE(SocketEnds::Done(ends_.sender.get(), send));
  ASSERT_TRUE(KernelHas(bytes.size()));
  ends_.sender.reset();
  std::memset(bytes.data(), 0, bytes.size());
  std::vector<char> got(bytes.size());
  EXPECT_EQ(SocketEnds::Wait(ends_.receiver.get(), ends_.Receive(&got)).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ZeroCopyTest, CopiesWithoutPinnedMemory) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
  std::thread unprivileged([&] {
    // Changes this thread alone. Without permission to change its user, the thread has no
    // privilege.
    (void)syscall(SYS_setresuid, 65534, 65534, 65534);
    ExpectCopied(1);
  });
  unprivileged.join();
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

}  // namespace
}  // namespace rewire::net
