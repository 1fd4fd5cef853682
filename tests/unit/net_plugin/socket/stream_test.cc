// One TCP connection of a link: frames arrive whole however they are divided, peeked data is not
// lost, and the kernel's send queue is bounded on short paths, and nowhere else.
#include "net_plugin/socket/stream.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/unique_fd.h"
#include "tests/unit/net_plugin/proxy.h"
#include "tests/unit/net_plugin/socket_ends.h"

namespace rewire::net {
namespace {

class StreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sockaddr_storage address = net_test::LoopbackV4();
    socklen_t length = sizeof(sockaddr_in);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(listener.get(), at, length), 0);
    ASSERT_EQ(listen(listener.get(), 1), 0);
    ASSERT_EQ(getsockname(listener.get(), at, &length), 0);
    peer_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(peer_.get(), at, length), 0);
    stream_.emplace(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    ASSERT_GE(stream_->fd(), 0);
  }
  void Feed(const std::string& bytes) {
    ASSERT_EQ(send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Returns the number of bytes in the kernel's receive queue.
  [[nodiscard]] int Waiting() const {
    int bytes = 0;
    ioctl(stream_->fd(), FIONREAD, &bytes);
    return bytes;
  }
  // Reads the available part of the current frame.
  void Read() {
    if (!headed_) {
      const absl::StatusOr<bool> headed = stream_->ReadHeader(&header_);
      ASSERT_TRUE(headed.ok()) << headed.status();
      headed_ = *headed;
      if (!headed_) return;
      payload_.clear();
    }
    while (payload_.size() < header_.bytes) {
      std::string some(header_.bytes - payload_.size(), 0);
      const absl::StatusOr<size_t> got = stream_->ReadPayload(some.data(), some.size());
      ASSERT_TRUE(got.ok()) << got.status();
      if (*got == 0) return;
      payload_ += some.substr(0, *got);
    }
    headed_ = false;
    read_.push_back(payload_);
  }

  UniqueFd peer_;
  std::optional<Stream> stream_;
  bool headed_ = false;
  FrameHeader header_;
  std::string payload_;
  std::vector<std::string> read_;
};

std::string Frame(const std::string& payload) {
  FrameHeader header;
  header.bytes = static_cast<uint32_t>(payload.size());
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload;
}

TEST_F(StreamTest, ReadsFramesCutAnywhere) {
  std::vector<std::string> payloads;
  std::string all;
  for (const size_t bytes : {0, 1, 39, 40, 41, 1000, 16383, 16384, 70000, 200000, 8, 0}) {
    const std::vector<char> pattern = net_test::Pattern(bytes, bytes + 1);
    payloads.emplace_back(pattern.begin(), pattern.end());
    all += Frame(payloads.back());
  }
  for (const size_t cut : {1, 7, 40, 47, 1000, 65536, 100000}) {
    read_.clear();
    const size_t most = cut < 1000 ? 2000 : all.size();  // only the small frames in small pieces
    size_t fed = 0;
    const Time deadline = net_test::Soon();
    while (read_.size() < payloads.size()) {
      if (fed < all.size()) {
        const std::string piece = all.substr(fed, fed < most ? cut : all.size());
        const ssize_t n =
            send(peer_.get(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) fed += static_cast<size_t>(n);
      }
      ASSERT_NO_FATAL_FAILURE(Read());
      ASSERT_LT(Now(), deadline) << cut;
    }
    EXPECT_TRUE(read_ == payloads) << cut;
  }
}

// The kernel acknowledges small segments when they are read.
TEST_F(StreamTest, TakesSmallFrameFromKernelAtNextRead) {
  const std::string frame = Frame("message");
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(Feed(frame));
    pollfd there{stream_->fd(), POLLIN, 0};
    ASSERT_EQ(poll(&there, 1, 20000), 1);
    ASSERT_NO_FATAL_FAILURE(Read());
    ASSERT_EQ(read_.size(), static_cast<size_t>(i) + 1);
    EXPECT_EQ(Waiting(), static_cast<int>(frame.size()));
    ASSERT_NO_FATAL_FAILURE(Read());
    EXPECT_EQ(Waiting(), 0);
  }
}

// A large message takes one call: a second call would look for a header that has already been read.
TEST_F(StreamTest, TakesPayloadWithNextFrame) {
  const std::string large = Frame(std::string(60000, 'x'));
  ASSERT_NO_FATAL_FAILURE(Feed(large + Frame("message")));
  for (const Time deadline = net_test::Soon(); Waiting() < 60087;) ASSERT_LT(Now(), deadline);
  ASSERT_NO_FATAL_FAILURE(Read());
  ASSERT_EQ(read_.size(), 1u);
  EXPECT_EQ(Waiting(), 0);
  ASSERT_NO_FATAL_FAILURE(Read());
  EXPECT_EQ(read_.back(), "message");
}

// NCCL's kernels poll the memory after a message.
TEST_F(StreamTest, WritesNothingBeyondPayload) {
  ASSERT_NO_FATAL_FAILURE(Feed(Frame(std::string(60000, 'x')) + Frame("message")));
  for (const Time deadline = net_test::Soon(); Waiting() < 60087;) ASSERT_LT(Now(), deadline);
  FrameHeader header;
  ASSERT_TRUE(*stream_->ReadHeader(&header));
  std::string room(61000, '-');
  ASSERT_EQ(*stream_->ReadPayload(room.data(), header.bytes), header.bytes);
  EXPECT_EQ(room, std::string(60000, 'x') + std::string(1000, '-'));
}

TEST_F(StreamTest, CloseAfterPeekIsNotReset) {
  ASSERT_NO_FATAL_FAILURE(Feed(Frame("message")));
  pollfd there{stream_->fd(), POLLIN, 0};
  ASSERT_EQ(poll(&there, 1, 20000), 1);
  ASSERT_NO_FATAL_FAILURE(Read());
  ASSERT_GT(Waiting(), 0);
  stream_.reset();
  char byte = 0;
  EXPECT_EQ(recv(peer_.get(), &byte, 1, 0), 0) << strerror(errno);
}

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
