// Authorised peers may connect; others are rejected. Idle links are kept.
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
#include "tests/unit/net_plugin/scripted_handshake.h"

namespace rewire::net {
namespace {

using net_test::HelloTo;
using net_test::IsClosed;
using net_test::ProofFor;
using net_test::ReadBytes;
using net_test::Visit;
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

  // Makes a link from `from` to a new listener of `to`.
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
  // Returns whether `links` closes this connection; stores the bytes that it sent before.
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

// Writes a sender's close.
void Close(Link* link) {
  FrameHeader close;
  close.kind = FrameKind::kClose;
  close.use = link->use;
  ASSERT_EQ(*link->streams[0].Write(&close, sizeof close, nullptr, 0), sizeof close);
}

TEST_F(LinksTest, JoinsStreamsOfOneLink) {
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
  EXPECT_EQ(a_.counters().links_made.load(), 1u);
}

TEST_F(LinksTest, ReusesIdleLinkForSamePair) {
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

TEST_F(LinksTest, DoesNotReuseLinkOfClosedPeer) {
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

TEST_F(LinksTest, BytesOfEarlierUseEndLink) {
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

TEST_F(LinksTest, AnswersHellosThatItRefusesAndCountsThem) {
  const absl::StatusOr<ListenAddress> listener = b_.Listen(Loopback());
  ASSERT_TRUE(listener.ok());
  Hello nobody = HelloTo(*listener, 1);
  nobody.listener += 1;
  Hello another = HelloTo(*listener, 1);
  another.peer += 1;  // a process that had this port before
  Hello version = HelloTo(*listener, 1);
  version.version = 99;
  const std::pair<std::string, std::optional<Answer>> hellos[] = {
      {std::string(200, 'x'), {}},
      {EncodeHello(nobody), Answer::kUnknown},
      {EncodeHello(another), Answer::kUnknown},
      {EncodeHello(version), Answer::kVersion}};
  uint64_t count = 0;
  for (const auto& [bytes, answer] : hellos) {
    const UniqueFd fd = Visit(*listener, bytes);
    const std::string said = ReadBytes(fd.get(), kChallengeBytes);
    EXPECT_TRUE(IsClosed(fd.get()));
    const std::optional<Challenge> challenge = DecodeChallenge(said);
    EXPECT_EQ(challenge ? std::optional(challenge->answer) : std::nullopt, answer);
    if (challenge) {
      EXPECT_EQ(challenge->proof, Code{});  // the listener proves nothing to this peer
    }
    EXPECT_EQ(b_.counters().unauthenticated.load(), ++count);
  }
}

// Wrong proofs: of another key, recorded from another connection, and the listener's own proof sent
// back.
TEST_F(LinksTest, RefusesProofsThatAreNotOfThisConnection) {
  const absl::StatusOr<ListenAddress> listener = b_.Listen(Loopback());
  const std::string hello = EncodeHello(HelloTo(*listener, 1));
  std::string recorded;
  {
    const UniqueFd fd = Visit(*listener, hello);
    const auto challenge = DecodeChallenge(ReadBytes(fd.get(), kChallengeBytes));
    ASSERT_TRUE(challenge.has_value());
    recorded = ProofFor(*listener, hello, *challenge);
    ASSERT_EQ(send(fd.get(), recorded.data(), recorded.size(), 0), ssize_t{kProofBytes});
    EXPECT_TRUE(IsWelcome(ReadBytes(fd.get(), kWelcomeBytes)));
  }
  EXPECT_EQ(b_.counters().unauthenticated.load(), 0u);
  using Make = std::function<std::string(const Challenge&)>;
  const Make wrong[] = {
      [&](const Challenge&) { return recorded; },
      [&](const Challenge& c) { return EncodeProof(c.proof); },
      [&](const Challenge& c) { return ProofFor(*listener, hello, c, RandomKey()); },
      [&](const Challenge&) { return std::string(kProofBytes, '\0'); },
  };
  uint64_t count = 0;
  for (const Make& make : wrong) {
    const UniqueFd fd = Visit(*listener, hello);
    const auto challenge = DecodeChallenge(ReadBytes(fd.get(), kChallengeBytes));
    ASSERT_TRUE(challenge.has_value());
    const std::string proof = make(*challenge);
    ASSERT_EQ(send(fd.get(), proof.data(), proof.size(), 0), ssize_t{kProofBytes});
    EXPECT_TRUE(IsClosed(fd.get()));
    EXPECT_EQ(b_.counters().unauthenticated.load(), ++count);
  }
}

// A network attacker that reads everything and answers as the listener would.
TEST_F(LinksTest, WritesNoKeyInTheClear) {
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

// The listener of an idle link accepts an open frame from the right peer for one use only.
TEST_F(LinksTest, OpenTagsDifferByLinkUseAndKey) {
  const Key key = RandomKey();
  EXPECT_NE(OpenTag(key, 1, 2), OpenTag(key, 1, 3));
  EXPECT_NE(OpenTag(key, 1, 2), OpenTag(key, 2, 2));
  EXPECT_NE(OpenTag(key, 1, 2), OpenTag(RandomKey(), 1, 2));
}

TEST_F(LinksTest, DropsConnectionsThatStopInHandshake) {
  Links impatient({{}, milliseconds(50), milliseconds(50)});
  const absl::StatusOr<ListenAddress> listener = impatient.Listen(Loopback());
  const std::string hello = EncodeHello(HelloTo(*listener, 1, 2));
  // The program makes no call in the meantime.
  for (const std::string& bytes : {std::string(), hello.substr(0, 20)}) {
    const UniqueFd fd = Visit(*listener, bytes);
    EXPECT_TRUE(IsClosed(fd.get())) << bytes.size();
  }
  for (const bool proves : {false, true}) {  // and then the other stream never connects
    const UniqueFd fd = Visit(*listener, hello);
    const auto challenge = DecodeChallenge(ReadBytes(fd.get(), kChallengeBytes));
    ASSERT_TRUE(challenge.has_value());
    const std::string proof = ProofFor(*listener, hello, *challenge);
    if (proves) send(fd.get(), proof.data(), proof.size(), 0);
    std::string said;
    EXPECT_TRUE(Closes(&impatient, listener->listener, fd.get(), &said)) << proves;
  }
  EXPECT_EQ(impatient.counters().unauthenticated.load(), 4u);
}

TEST_F(LinksTest, RefusesMembersOfAnotherJob) {
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

TEST_F(LinksTest, ConnectTimesOutWithoutAnswer) {
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

TEST_F(LinksTest, DoesNotReuseLinkBeforeReceiverReleasesIt) {
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
TEST_F(LinksTest, DroppedLinkEndsDespiteForkedChild) {
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

TEST_F(LinksTest, DropsIdleLinksToEndedProcesses) {
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

// A worker does the handshake: a program that is busy elsewhere finds the link complete.
TEST_F(LinksTest, AcceptsLinksWithoutCalls) {
  absl::StatusOr<ListenAddress> address = b_.Listen(Loopback());
  std::unique_ptr<Link> there;
  for (const Time deadline = Soon(); there == nullptr && Now() < deadline;) {
    there = *a_.Connect(Loopback(), 3, &*address);
  }
  ASSERT_NE(there, nullptr);
  const auto here = b_.Accept(address->listener);
  ASSERT_TRUE(here.ok());
  ASSERT_NE(*here, nullptr);
  EXPECT_EQ((*here)->id, there->id);
}

TEST_F(LinksTest, ConnectFailsWithoutListener) {
  absl::StatusOr<ListenAddress> address = b_.Listen(Loopback());
  reinterpret_cast<sockaddr_in&>(address->address).sin_port = htons(1);
  absl::StatusOr<std::unique_ptr<Link>> link = std::unique_ptr<Link>();
  const Time deadline = Soon();
  while (link.ok() && *link == nullptr && Now() < deadline) {
    link = a_.Connect(Loopback(), 1, &*address);
  }
  EXPECT_THAT(std::string(link.status().message()), HasSubstr("127.0.0.1:1: Connection refused"));
}

TEST(HandleTest, RoundTrips) {
  ListenAddress a;
  a.address = Loopback();
  reinterpret_cast<sockaddr_in&>(a.address).sin_port = htons(4711);
  a.incarnation = 1;
  a.listener = 2;
  a.key = RandomKey();
  a.attempt = 4;
  char bytes[kHandleBytes];
  EncodeAddress(a, bytes);
  const std::optional<ListenAddress> b = DecodeAddress(bytes);
  ASSERT_TRUE(b.has_value());
  EXPECT_EQ(AddressText(b->address), "127.0.0.1:4711");
  EXPECT_EQ(std::tie(b->incarnation, b->listener, b->attempt), std::make_tuple(1u, 2u, 4u));
  EXPECT_EQ(b->key, a.key);
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
