// Who may connect, and what becomes of those who may not; links at rest.
#include "net_plugin/socket/links.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "net_plugin/socket/address.h"

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

sockaddr_storage Loopback() {
  sockaddr_storage a{};
  auto& in = reinterpret_cast<sockaddr_in&>(a);
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

Time Soon() { return Now() + seconds(20); }

class LinksTest : public ::testing::Test {
 protected:
  using Ends = std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>;

  // A link from `from` to a new listener of `to`.
  static absl::StatusOr<Ends> Join(Links* from, Links* to, int streams = 2) {
    absl::StatusOr<ListenAddress> address = to->Listen(Loopback());
    if (!address.ok()) return address.status();
    Ends ends;
    const Time deadline = Soon();
    while ((ends.first == nullptr || ends.second == nullptr) && Now() < deadline) {
      if (ends.first == nullptr) {
        auto link = from->Connect(Loopback(), streams, &*address);
        if (!link.ok()) {
          (void)to->Accept(address->listener);
          return link.status();
        }
        ends.first = *std::move(link);
      }
      auto link = to->Accept(address->listener);
      if (!link.ok()) return link.status();
      if (*link != nullptr) ends.second = *std::move(link);
    }
    to->Unlisten(address->listener);
    return ends;
  }
  // Somebody who only writes these bytes to a listener of `to`.
  UniqueFd Visit(const ListenAddress& to, const std::string& bytes) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.address),
                      AddressLength(to.address)),
              0);
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return fd;
  }
  // True when `links` closes this connection; what it said before that.
  bool Closes(Links* links, uint64_t listener, int fd, std::string* said) {
    const Time deadline = Soon();
    while (Now() < deadline) {
      EXPECT_TRUE(links->Accept(listener).ok());
      char bytes[64];
      const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
      if (n > 0) said->append(bytes, static_cast<size_t>(n));
      if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
    }
    return false;
  }

  Links a_{{}};
  Links b_{{}};
};

// The close that a sender writes.
void Close(Link* link) {
  FrameHeader close;
  close.kind = FrameKind::kClose;
  close.use = link->use;
  ASSERT_EQ(*link->streams[0].Write(&close, sizeof close, nullptr, 0), sizeof close);
}

TEST_F(LinksTest, StreamsOfOneLinkFindEachOther) {
  absl::StatusOr<Ends> ends = Join(&a_, &b_, 5);
  ASSERT_TRUE(ends.ok()) << ends.status();
  ASSERT_EQ(ends->first->streams.size(), 5u);
  ASSERT_EQ(ends->second->streams.size(), 5u);
  for (size_t s = 0; s < 5; ++s) {
    FrameHeader sent;
    sent.sequence = s;
    ASSERT_TRUE(ends->first->streams[s].Write(&sent, sizeof sent, nullptr, 0).ok());
    pollfd there{ends->second->streams[s].fd(), POLLIN, 0};
    ASSERT_EQ(poll(&there, 1, 20000), 1);
    FrameHeader got;
    ASSERT_TRUE(*ends->second->streams[s].ReadHeader(&got));
    EXPECT_EQ(got.sequence, s);
  }
  EXPECT_EQ(a_.counters().links_made, 1u);
}

TEST_F(LinksTest, ALinkAtRestIsTakenUpAgainByTheSamePair) {
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
  EXPECT_EQ(a_.counters().links_reused, 1u);
  // A third process is another one.
  Close(ends->first.get());
  a_.ReturnSending(std::move(ends->first));
  b_.ReturnReceiving(std::move(ends->second));
  Links c{{}};
  ends = Join(&a_, &c);
  ASSERT_TRUE(ends.ok());
  EXPECT_NE(ends->first->id, id);
}

TEST_F(LinksTest, ALinkWhosePeerHasGoneIsNotTakenUp) {
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

TEST_F(LinksTest, BytesOfAnEarlierUseEndALink) {
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

TEST_F(LinksTest, StrangersAreTurnedAwayAndCounted) {
  const absl::StatusOr<ListenAddress> listener = b_.Listen(Loopback());
  ASSERT_TRUE(listener.ok());
  Hello hello;
  hello.streams = 1;
  hello.link = 1;
  hello.listener = listener->listener;
  hello.key = listener->key + 1;
  Hello nobody = hello;
  nobody.listener += 1;
  Hello job = hello;
  job.key = listener->key;
  job.job = 9;
  Hello version = job;
  version.version = 99;
  const std::pair<std::string, std::optional<Welcome>> guests[] = {
      {std::string(200, 'x'), {}},
      {EncodeHello(hello), Welcome::kStranger},
      {EncodeHello(nobody), Welcome::kStranger},
      {EncodeHello(job), Welcome::kStranger},
      {EncodeHello(version), Welcome::kVersion}};
  uint64_t count = 0;
  for (const auto& [bytes, answer] : guests) {
    const UniqueFd fd = Visit(*listener, bytes);
    std::string said;
    EXPECT_TRUE(Closes(&b_, listener->listener, fd.get(), &said));
    EXPECT_EQ(said.empty() ? std::nullopt : DecodeWelcome(said), answer);
    EXPECT_EQ(b_.counters().strangers, ++count);
  }
}

TEST_F(LinksTest, WhoSaysNothingOrHalfIsGivenUp) {
  Links impatient({0, milliseconds(50), milliseconds(50)});
  const absl::StatusOr<ListenAddress> listener = impatient.Listen(Loopback());
  Hello hello;
  hello.streams = 2;  // the other one never comes
  hello.link = 1;
  hello.listener = listener->listener;
  hello.key = listener->key;
  for (const std::string& bytes :
       {std::string(), EncodeHello(hello).substr(0, 20), EncodeHello(hello)}) {
    const UniqueFd fd = Visit(*listener, bytes);
    std::string said;
    EXPECT_TRUE(Closes(&impatient, listener->listener, fd.get(), &said)) << bytes.size();
  }
  EXPECT_EQ(impatient.counters().strangers, 3u);
}

TEST_F(LinksTest, AnotherJobsMembersAreRefusedByName) {
  Links ours({1, seconds(5), seconds(20)});
  Links theirs({2, seconds(5), seconds(20)});
  absl::StatusOr<ListenAddress> address = ours.Listen(Loopback());
  absl::StatusOr<std::unique_ptr<Link>> link = std::unique_ptr<Link>();
  const Time deadline = Soon();
  while (link.ok() && *link == nullptr && Now() < deadline) {
    link = theirs.Connect(Loopback(), 1, &*address);
    EXPECT_TRUE(ours.Accept(address->listener).ok());
  }
  EXPECT_EQ(link.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(link.status().message()), HasSubstr("127.0.0.1:"));
}

TEST_F(LinksTest, AnAnswerThatNeverComesIsAnError) {
  Links impatient({0, seconds(5), seconds(1)});
  absl::StatusOr<ListenAddress> address = b_.Listen(Loopback());  // and nobody looks after it
  // As long as it is asked for it goes on.
  const Time later = Now() + milliseconds(1500);
  while (Now() < later) {
    const auto link = impatient.Connect(Loopback(), 1, &*address);
    ASSERT_TRUE(link.ok()) << link.status();
    ASSERT_EQ(*link, nullptr);
  }
  // Then it is given up, by whoever comes next.
  poll(nullptr, 0, 1500);
  absl::StatusOr<ListenAddress> other = b_.Listen(Loopback());
  ASSERT_TRUE(impatient.Connect(Loopback(), 1, &*other).ok());
  const auto link = impatient.Connect(Loopback(), 1, &*address);
  EXPECT_EQ(link.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(LinksTest, ALinkIsNotTakenUpBeforeItsReceiverHasLetGo) {
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

// A data loader's worker, for example, has every descriptor of the process that it was forked from.
TEST_F(LinksTest, ALinkThatIsDroppedEndsThoughAForkedChildHasItsDescriptors) {
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

TEST_F(LinksTest, LinksToProcessesThatHaveGoneAreForgotten) {
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

TEST_F(LinksTest, WhoHasGreetedInTimeIsHeardHoweverLate) {
  Links slow({0, milliseconds(20), seconds(20)});
  const absl::StatusOr<ListenAddress> listener = slow.Listen(Loopback());
  Hello hello;
  hello.streams = 1;
  hello.link = 1;
  hello.listener = listener->listener;
  hello.key = listener->key;
  const std::string bytes = EncodeHello(hello);
  const UniqueFd fd = Visit(*listener, bytes.substr(0, 10));
  ASSERT_TRUE(slow.Accept(listener->listener).ok());  // it has come, and is known to have
  ASSERT_EQ(send(fd.get(), bytes.data() + 10, bytes.size() - 10, 0),
            static_cast<ssize_t>(bytes.size() - 10));
  poll(nullptr, 0, 150);  // nobody asks for a while
  const auto link = slow.Accept(listener->listener);
  ASSERT_TRUE(link.ok());
  EXPECT_NE(*link, nullptr);
  EXPECT_EQ(slow.counters().strangers, 0u);
}

TEST_F(LinksTest, NobodyListensThere) {
  absl::StatusOr<ListenAddress> address = b_.Listen(Loopback());
  reinterpret_cast<sockaddr_in&>(address->address).sin_port = htons(1);
  absl::StatusOr<std::unique_ptr<Link>> link = std::unique_ptr<Link>();
  const Time deadline = Soon();
  while (link.ok() && *link == nullptr && Now() < deadline) {
    link = a_.Connect(Loopback(), 1, &*address);
  }
  EXPECT_THAT(std::string(link.status().message()), HasSubstr("127.0.0.1:1: Connection refused"));
}

TEST(HandleTest, GoesThroughItsBytes) {
  ListenAddress a;
  a.address = Loopback();
  reinterpret_cast<sockaddr_in&>(a.address).sin_port = htons(4711);
  a.incarnation = 1;
  a.listener = 2;
  a.key = 3;
  a.attempt = 4;
  char bytes[kHandleBytes];
  EncodeAddress(a, bytes);
  const std::optional<ListenAddress> b = DecodeAddress(bytes);
  ASSERT_TRUE(b.has_value());
  EXPECT_EQ(AddressText(b->address), "127.0.0.1:4711");
  EXPECT_EQ(std::tie(b->incarnation, b->listener, b->key, b->attempt),
            std::make_tuple(1u, 2u, 3u, 4u));
  auto& six = reinterpret_cast<sockaddr_in6&>(a.address);
  six = {};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(80);
  six.sin6_addr = in6addr_loopback;
  EncodeAddress(a, bytes);
  EXPECT_EQ(AddressText(DecodeAddress(bytes)->address), "[::1]:80");
  bytes[0] ^= 1;
  EXPECT_FALSE(DecodeAddress(bytes).has_value());
}

}  // namespace
}  // namespace rewire::net
