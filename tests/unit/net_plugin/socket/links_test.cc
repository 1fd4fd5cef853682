// Authorised peers may connect; others are rejected.
#include "net_plugin/socket/links.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "tests/unit/net_plugin/socket/scripted_handshake.h"
#include "tests/unit/net_plugin/socket/two_processes.h"

namespace rewire::net {
namespace {

using net_test::HelloTo;
using net_test::IsClosed;
using net_test::ProofFor;
using net_test::ReadBytes;
using net_test::Visit;

class LinksTest : public TwoProcesses {};

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
    const absl::StatusOr<Challenge> challenge = DecodeChallenge(said);
    EXPECT_EQ(challenge.ok() ? std::optional(challenge->answer) : std::nullopt, answer);
    if (challenge.ok()) {
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
    ASSERT_TRUE(challenge.ok());
    recorded = ProofFor(*listener, hello, *challenge);
    ASSERT_EQ(send(fd.get(), recorded.data(), recorded.size(), 0), ssize_t{kProofBytes});
    EXPECT_TRUE(CheckWelcome(ReadBytes(fd.get(), kWelcomeBytes)).ok());
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
    ASSERT_TRUE(challenge.ok());
    const std::string proof = make(*challenge);
    ASSERT_EQ(send(fd.get(), proof.data(), proof.size(), 0), ssize_t{kProofBytes});
    EXPECT_TRUE(IsClosed(fd.get()));
    EXPECT_EQ(b_.counters().unauthenticated.load(), ++count);
  }
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
    ASSERT_TRUE(challenge.ok());
    const std::string proof = ProofFor(*listener, hello, *challenge);
    if (proves) send(fd.get(), proof.data(), proof.size(), 0);
    std::string said;
    EXPECT_TRUE(Closes(&impatient, listener->listener, fd.get(), &said)) << proves;
  }
  EXPECT_EQ(impatient.counters().unauthenticated.load(), 4u);
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

}  // namespace
}  // namespace rewire::net
