// A sender and a receiver over several streams, which workers and NCCL's thread share.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <thread>

#include "tests/unit/net_plugin/proxy.h"
#include "tests/unit/net_plugin/socket_ends.h"

namespace rewire::net {
namespace {

using net_test::Pattern;
using net_test::SocketEnds;
using net_test::Soon;

class StreamsTest : public ::testing::TestWithParam<int> {
 protected:
  void Join() { ends_.Join(GetParam()); }

  SocketEnds ends_;
};

// The rest of a message on a further stream may be read ahead of its place.
TEST_P(StreamsTest, LateReceivesFindDataReadAhead) {
  ASSERT_NO_FATAL_FAILURE(Join());
  const size_t bytes = 2 * kMostChunkBytes + 1000;
  constexpr int kAhead = 8;
  for (int round = 0; round < 12; ++round) {
    std::vector<std::vector<char>> sent;
    std::vector<Request*> sends;
    for (int i = 0; i < kAhead; ++i) sent.push_back(Pattern(bytes, round * kAhead + i + 1));
    for (const auto& s : sent) sends.push_back(ends_.Send(s));
    for (int i = 0; i < kAhead; ++i) {
      std::vector<char> got(bytes);
      Request* const receive = ends_.Receive(&got);
      const Time deadline = Soon();
      for (;;) {
        for (Request*& s : sends) {
          if (s != nullptr && *ends_.sender->Test(s, nullptr)) s = nullptr;
        }
        const absl::StatusOr<bool> through = ends_.receiver->Test(receive, nullptr);
        ASSERT_TRUE(through.ok()) << through.status();
        if (*through) break;
        ASSERT_LT(Now(), deadline) << "round " << round << " message " << i;
      }
      ASSERT_TRUE(got == sent[static_cast<size_t>(i)]);
    }
    for (Request* s : sends) {
      if (s == nullptr) continue;
      ASSERT_TRUE(SocketEnds::Wait(ends_.sender.get(), s).ok());
    }
  }
}

// The receiver may read the close before the last chunks.
TEST_P(StreamsTest, CloseAfterLastMessageFailsNothing) {
  for (int round = 0; round < 30; ++round) {
    ASSERT_NO_FATAL_FAILURE(Join());
    const std::vector<char> sent =
        Pattern(3 * kMostChunkBytes + 17, static_cast<uint64_t>(round) + 1);
    std::vector<char> got(sent.size());
    Request* const receive = ends_.Receive(&got);
    std::thread closes([&] {
      EXPECT_TRUE(SocketEnds::Wait(ends_.sender.get(), ends_.Send(sent)).ok());
      ends_.sender.reset();
    });
    const absl::Status received = SocketEnds::Wait(ends_.receiver.get(), receive);
    closes.join();
    ASSERT_TRUE(received.ok()) << round << ": " << received;
    ASSERT_TRUE(got == sent);
    // Receiving more than was sent fails with an error.
    std::vector<char> more(1);
    void* data = more.data();
    const size_t one = 1;
    const int tag = 0;
    void* mr = nullptr;
    if (round % 2 == 0) {
      const absl::StatusOr<Request*> r = ends_.receiver->Irecv(1, &data, &one, &tag, &mr);
      EXPECT_TRUE(!r.ok() || !SocketEnds::Wait(ends_.receiver.get(), *r).ok());
    }
    ends_.receiver.reset();
  }
  EXPECT_GT(ends_.here.counters().links_reused.load(), 0u);
}

// A message completes before the receiver looks for the next message. Looking first would take data
// from the kernel, which would answer the sender first.
TEST_P(StreamsTest, CompletesMessageBeforeReadingOn) {
  ASSERT_NO_FATAL_FAILURE(Join());
  std::vector<std::vector<char>> got(2, std::vector<char>(100));
  Request* const first = ends_.Receive(&got[0]);
  Request* const second = ends_.Receive(&got[1]);
  const std::vector<char> sent = Pattern(100, 1);
  ASSERT_TRUE(SocketEnds::Wait(ends_.sender.get(), ends_.Send(sent)).ok());
  const auto unread = [&] {
    int bytes = 0;
    EXPECT_EQ(ioctl(ends_.to(0), FIONREAD, &bytes), 0);
    return static_cast<size_t>(bytes);
  };
  ASSERT_TRUE(SocketEnds::Wait(ends_.receiver.get(), first).ok());
  EXPECT_TRUE(got[0] == sent);
  EXPECT_EQ(unread(), sizeof(FrameHeader) + sent.size());
  EXPECT_FALSE(SocketEnds::Done(ends_.receiver.get(), second));
  EXPECT_EQ(unread(), 0u);
  ASSERT_TRUE(SocketEnds::Wait(ends_.sender.get(), ends_.Send(sent)).ok());
  ASSERT_TRUE(SocketEnds::Wait(ends_.receiver.get(), second).ok());
}

// NCCL sends 512 KiB at a time by default.
TEST_P(StreamsTest, SplitsNcclsMessageOverAllStreams) {
  ASSERT_NO_FATAL_FAILURE(Join());
  const int small = 4096;  // the kernel accepts little
  for (int s = 0; s < GetParam(); ++s) {
    ASSERT_EQ(setsockopt(ends_.from(s), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    ASSERT_EQ(setsockopt(ends_.to(s), SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  }
  const std::vector<char> sent = Pattern(512 << 10, 1);
  Request* const send = ends_.Send(sent);
  // Nobody reads, so each stream is full with its first chunk.
  for (int s = 0; s < GetParam(); ++s) {
    int bytes = 0;
    for (const Time deadline = Soon(); bytes == 0 && Now() < deadline;) {
      EXPECT_FALSE(SocketEnds::Done(ends_.sender.get(), send));
      ASSERT_EQ(ioctl(ends_.to(s), FIONREAD, &bytes), 0);
    }
    EXPECT_GT(bytes, 0) << "stream " << s;
  }
  std::vector<char> got(sent.size());
  std::thread receives(
      [&] { EXPECT_TRUE(SocketEnds::Wait(ends_.receiver.get(), ends_.Receive(&got)).ok()); });
  EXPECT_TRUE(SocketEnds::Wait(ends_.sender.get(), send).ok());
  receives.join();
  EXPECT_TRUE(got == sent);
}

INSTANTIATE_TEST_SUITE_P(Streams, StreamsTest, ::testing::Values(1, 2, 4, 8));

}  // namespace
}  // namespace rewire::net
