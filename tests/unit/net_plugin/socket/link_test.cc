// Idle links are kept for the same pair of processes, and dropped when either side has ended.
#include "net_plugin/socket/link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/unit/net_plugin/socket/two_processes.h"

namespace rewire::net {
namespace {

class IdleLinksTest : public TwoProcesses {};

TEST_F(IdleLinksTest, ReusesIdleLinkForSamePair) {
  absl::StatusOr<Ends> ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok());
  const uint64_t id = ends->first->id;
  Close(ends->first.get());
  a_.ReturnSending(std::move(ends->first));
  b_.ReturnReceiving(std::move(ends->second));
  ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok());
  EXPECT_EQ(ends->first->id, id);
  EXPECT_EQ(ends->second->use, 2u);
  EXPECT_EQ(a_.counters().links_reused.load(), 1u);
  // A third process has its own link.
  Close(ends->first.get());
  a_.ReturnSending(std::move(ends->first));
  b_.ReturnReceiving(std::move(ends->second));
  Links c{{}};
  ends = Join(&a_, &c);
  ASSERT_TRUE(ends.ok());
  EXPECT_NE(ends->first->id, id);
}

TEST_F(IdleLinksTest, DoesNotReuseLinkOfClosedPeer) {
  absl::StatusOr<Ends> ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok());
  const uint64_t id = ends->first->id;
  Close(ends->first.get());
  a_.ReturnSending(std::move(ends->first));
  ends->second.reset();
  ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok()) << ends.status();
  EXPECT_NE(ends->first->id, id);
}

TEST_F(IdleLinksTest, BytesOfEarlierUseEndLink) {
  absl::StatusOr<Ends> ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok());
  Close(ends->first.get());
  FrameHeader stale;
  stale.use = 1;
  ASSERT_TRUE(ends->first->streams[0].Write(&stale, sizeof stale, nullptr, 0).ok());
  const absl::StatusOr<ListenAddress> listener = b_.Listen(Loopback());
  const int fd = ends->first->streams[0].fd();
  b_.ReturnReceiving(std::move(ends->second));
  std::string said;
  EXPECT_TRUE(Closes(&b_, listener->listener, fd, &said));
}

TEST_F(IdleLinksTest, DoesNotReuseLinkBeforeReceiverReleasesIt) {
  absl::StatusOr<Ends> ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok());
  const uint64_t id = ends->first->id;
  Close(ends->first.get());
  a_.ReturnSending(std::move(ends->first));
  std::unique_ptr<Link> kept = std::move(ends->second);
  ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok()) << ends.status();
  ASSERT_NE(ends->second, nullptr);
  EXPECT_NE(ends->first->id, id);
  b_.ReturnReceiving(std::move(kept));
  ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok());
  EXPECT_EQ(ends->first->id, id);
}

// A forked process, for example a data loader's worker, has every descriptor of its parent.
TEST_F(IdleLinksTest, DroppedLinkEndsDespiteForkedChild) {
  absl::StatusOr<Ends> ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok());
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ends->second.reset();
  pollfd ended{ends->first->streams[0].fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 20000), 1);
  char byte = 0;
  EXPECT_EQ(recv(ended.fd, &byte, 1, MSG_DONTWAIT), 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// The process had no descriptor left when it made its list of idle links.
TEST_F(IdleLinksTest, DropsALinkThatItCannotWatch) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  IdleLinks idle(
      64, [](uint64_t) { return std::nullopt; }, [](uint64_t, std::unique_ptr<Link>) {});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  absl::StatusOr<Ends> ends = Join(&a_, &b_);
  ASSERT_TRUE(ends.ok());
  idle.KeepReceiving(std::move(ends->second));
  pollfd ended{ends->first->streams[0].fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 20000), 1);
  char byte = 0;
  EXPECT_EQ(recv(ended.fd, &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(IdleLinksTest, DropsIdleLinksToEndedProcesses) {
  const auto open = [] {
    size_t n = 0;
    for (int fd = 0; fd < 1024; ++fd) n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return n;
  };
  const size_t before = open();
  for (int i = 0; i < 20; ++i) {
    Links other{{}};
    absl::StatusOr<Ends> ends = Join(&a_, &other);
    ASSERT_TRUE(ends.ok());
    Close(ends->first.get());
    a_.ReturnSending(std::move(ends->first));
    other.ReturnReceiving(std::move(ends->second));
  }
  const absl::StatusOr<ListenAddress> listener = a_.Listen(Loopback());
  const Time deadline = Soon();
  while (open() > before + 2 && Now() < deadline) {
    ASSERT_TRUE(a_.Accept(listener->listener).ok());
  }
  EXPECT_LE(open(), before + 2);  // the acceptor
}

}  // namespace
}  // namespace rewire::net
