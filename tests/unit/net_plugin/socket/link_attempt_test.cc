// The connecting side of a link: a listener that is absent, silent or of another job, and the bytes
// that an attacker on the network sees.
#include "net_plugin/socket/link_attempt.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <string>

#include "tests/unit/net_plugin/socket/scripted_handshake.h"
#include "tests/unit/net_plugin/socket/two_processes.h"

namespace rewire::net {
namespace {

using net_test::ReadBytes;
using ::testing::HasSubstr;

class LinkAttemptTest : public TwoProcesses {};

// A network attacker that reads everything and answers as the listener would.
TEST_F(LinkAttemptTest, WritesNoKeyInTheClear) {
  const Key job = RandomKey();
  Links connecting{{job}};
  UniqueFd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ListenAddress address;
  address.address = Loopback();
  address.incarnation = 5;
  address.listener = 6;
  address.key = RandomKey();
  socklen_t size = sizeof(sockaddr_in);
  ASSERT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address.address), size), 0);
  ASSERT_EQ(listen(server.get(), 8), 0);
  getsockname(server.get(), reinterpret_cast<sockaddr*>(&address.address), &size);
  const Key key = LinkKey(job, 5, 6, address.key);
  ASSERT_TRUE(connecting.Connect(Loopback(), 1, &address).ok());
  const UniqueFd fd(accept(server.get(), nullptr, nullptr));
  const auto drive = [&](size_t bytes) {
    std::string in;
    std::unique_ptr<Link> link;
    for (const Time deadline = Soon(); in.size() < bytes && Now() < deadline;) {
      EXPECT_TRUE(connecting.Connect(Loopback(), 1, &address).ok());
      if (WaitReady(fd.get(), POLLIN, Now() + milliseconds(1))) {
        in += ReadBytes(fd.get(), bytes - in.size());
      }
    }
    return in;
  };
  std::string all = drive(kHelloBytes);
  Challenge challenge;
  challenge.nonce = RandomNonce();
  challenge.proof = ProofOf(Side::kListening, key, all, challenge.nonce);
  std::string said = EncodeChallenge(challenge);
  ASSERT_EQ(send(fd.get(), said.data(), said.size(), 0), ssize_t{kChallengeBytes});
  const std::string hello = all;
  const std::string proof = drive(kProofBytes);
  EXPECT_EQ(proof, EncodeProof(ProofOf(Side::kConnecting, key, hello, challenge.nonce)));
  said = EncodeWelcome();
  ASSERT_EQ(send(fd.get(), said.data(), said.size(), 0), ssize_t{kWelcomeBytes});
  std::unique_ptr<Link> link;
  for (const Time deadline = Soon(); link == nullptr && Now() < deadline;) {
    link = *connecting.Connect(Loopback(), 1, &address);
  }
  ASSERT_NE(link, nullptr);
  // The link is idle, and is used again.
  const uint64_t id = link->id;
  FrameHeader finished;
  finished.kind = FrameKind::kFinished;
  finished.use = 1;
  ASSERT_EQ(send(fd.get(), &finished, sizeof finished, 0), ssize_t{sizeof finished});
  ASSERT_TRUE(WaitReady(link->streams[0].fd(), POLLIN, Soon()));
  connecting.ReturnSending(std::move(link));
  address.attempt = 0;
  ASSERT_NE(*connecting.Connect(Loopback(), 1, &address), nullptr);
  const std::string open = ReadBytes(fd.get(), sizeof(FrameHeader));
  FrameHeader header;
  ASSERT_EQ(open.size(), sizeof header);
  std::memcpy(&header, open.data(), sizeof header);
  EXPECT_EQ(header.kind, FrameKind::kOpen);
  EXPECT_EQ(header.total, OpenTag(key, id, 2));
  all += proof + open;
  for (const Key& secret : {job, address.key, key}) {
    for (size_t at = 0; at < kKeyBytes; at += 8) {
      EXPECT_EQ(all.find(secret.view().substr(at, 8)), std::string::npos);
    }
  }
}

TEST_F(LinkAttemptTest, RefusesMembersOfAnotherJob) {
  Links ours({RandomKey(), seconds(5), seconds(20)});
  Links theirs({RandomKey(), seconds(5), seconds(20)});
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

TEST_F(LinkAttemptTest, AttemptEndsWhenItIsNotPolled) {
  Links impatient({{}, seconds(5), seconds(1)});
  const UniqueFd silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // never accepts
  ListenAddress there;
  there.address = Loopback();
  socklen_t size = sizeof(sockaddr_in);
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&there.address), size), 0);
  ASSERT_EQ(listen(silent.get(), 8), 0);
  getsockname(silent.get(), reinterpret_cast<sockaddr*>(&there.address), &size);
  absl::StatusOr<ListenAddress> address = there;
  // The handshake continues while it is polled.
  const Time later = Now() + milliseconds(1500);
  while (Now() < later) {
    const auto link = impatient.Connect(Loopback(), 1, &*address);
    ASSERT_TRUE(link.ok()) << link.status();
    ASSERT_EQ(*link, nullptr);
  }
  // The next caller then abandons the handshake.
  poll(nullptr, 0, 1500);
  absl::StatusOr<ListenAddress> other = b_.Listen(Loopback());
  ASSERT_TRUE(impatient.Connect(Loopback(), 1, &*other).ok());
  const auto link = impatient.Connect(Loopback(), 1, &*address);
  EXPECT_EQ(link.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(LinkAttemptTest, ConnectFailsWithoutListener) {
  absl::StatusOr<ListenAddress> address = b_.Listen(Loopback());
  reinterpret_cast<sockaddr_in&>(address->address).sin_port = htons(1);
  absl::StatusOr<std::unique_ptr<Link>> link = std::unique_ptr<Link>();
  const Time deadline = Soon();
  while (link.ok() && *link == nullptr && Now() < deadline) {
    link = a_.Connect(Loopback(), 1, &*address);
  }
  EXPECT_THAT(std::string(link.status().message()), HasSubstr("127.0.0.1:1: Connection refused"));
}

TEST_F(LinkAttemptTest, SilentListenerDoesNotDelayOtherAttempts) {
  const UniqueFd silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // never accepts
  Links other{{}};
  Links connecting({{}, seconds(5), seconds(20), milliseconds(300)});
  ListenAddress there;
  there.address = Loopback();
  socklen_t size = sizeof(sockaddr_in);
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&there.address), size), 0);
  ASSERT_EQ(listen(silent.get(), 8), 0);
  getsockname(silent.get(), reinterpret_cast<sockaddr*>(&there.address), &size);
  absl::StatusOr<ListenAddress> nowhere = there;
  absl::StatusOr<ListenAddress> somewhere = other.Listen(Loopback());
  absl::Status status;
  std::unique_ptr<Link> link;
  const Time deadline = Soon();
  while ((status.ok() || link == nullptr) && Now() < deadline) {
    if (status.ok()) status = connecting.Connect(Loopback(), 1, &*nowhere).status();
    if (link == nullptr) link = *connecting.Connect(Loopback(), 1, &*somewhere);
    ASSERT_TRUE(other.Accept(somewhere->listener).ok());
  }
  EXPECT_NE(link, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not answer"));
}

}  // namespace
}  // namespace rewire::net
