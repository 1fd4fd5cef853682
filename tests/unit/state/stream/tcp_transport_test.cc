// Fragments and names between two transports, and connections that are refused.
#include "reconfig/state/stream/tcp_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "reconfig/base/counters.h"
#include "reconfig/base/socket.h"
#include "reconfig/state/stream/ask_name.h"
#include "reconfig/state/stream/content.h"
#include "reconfig/state/stream/intake.h"
#include "reconfig/state/stream/outflow.h"
#include "tests/unit/state/stream/scripted_receiver.h"

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

const std::vector<WorldMember> kSenders = {{1, 0, ""}};

std::unique_ptr<TcpTransport> Endpoint(MemberId member, Duration connect = seconds(10)) {
  TcpOptions options;
  options.member = member;
  options.connect = connect;
  auto started = TcpTransport::Start(options);
  EXPECT_TRUE(started.ok()) << started.status();
  return std::move(*started);
}

class TcpTransportTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 5 * kFragmentBytes + 123;
  std::vector<char> source_ = Numbers(kBytes);
  std::vector<char> target_ = std::vector<char>(kBytes);
  std::unique_ptr<TcpTransport> from_ = Endpoint(1);
  std::unique_ptr<TcpTransport> to_ = Endpoint(2);
  Budget budget_{2 * kFragmentBytes};

  std::vector<Outgoing> Everything() {
    Outgoing out;
    out.end = kBytes;
    out.source = {{MemoryKind::kHost, source_.data(), nullptr}, Runs(0, kBytes)};
    out.target = {2, 0, to_->address()};
    return {out};
  }
  std::vector<Incoming> Expected() {
    const Runs all(0, kBytes);
    return {{0, 0, kBytes, 1, all, {{MemoryKind::kHost, target_.data(), nullptr}, all}}};
  }

  static StreamHello HelloTo(const StreamKey& key) {
    return {key.purpose, key.epoch, 1, 2, 0, 0, RandomNonce()};
  }
  // Connects, sends `hello`, and returns the connection and the answer.
  UniqueFd Greet(const StreamHello& hello, StreamChallenge* challenge) {
    UniqueFd fd;
    EXPECT_TRUE(ConnectTcp(to_->address(), Now() + kStreamPatience, &fd).ok());
    EXPECT_TRUE(SendAll(fd.get(), EncodeStreamHello(hello), Now() + kStreamPatience).ok());
    char bytes[kStreamChallengeSize];
    EXPECT_TRUE(ReceiveAll(fd.get(), bytes, sizeof bytes, Now() + kStreamPatience).ok());
    const auto decoded = DecodeStreamChallenge({bytes, sizeof bytes});
    EXPECT_TRUE(decoded.ok());
    *challenge = decoded.value_or(StreamChallenge{});
    return fd;
  }
  // Sends the bytes, and returns whether the endpoint then closes the connection without a reply.
  static bool ClosesAfter(int fd, std::string_view bytes) {
    if (!bytes.empty()) {
      EXPECT_TRUE(SendAll(fd, bytes, Now() + kStreamPatience).ok());
    }
    char byte = 0;
    const SocketCode code = ReceiveAll(fd, &byte, 1, Now() + kStreamPatience).code;
    return code == SocketCode::kClosed || code == SocketCode::kFailed;
  }
  // Connects as a member, with a complete handshake, and returns the connection.
  UniqueFd Authenticate(const StreamKey& key) {
    const StreamHello hello = HelloTo(key);
    StreamChallenge challenge;
    UniqueFd fd = Greet(hello, &challenge);
    const std::string proof = ProofFor(EncodeStreamHello(hello), EncodeStreamChallenge(challenge));
    EXPECT_TRUE(SendAll(fd.get(), proof, Now() + kStreamPatience).ok());
    char reply[kReplySize];
    EXPECT_TRUE(ReceiveAll(fd.get(), reply, sizeof reply, Now() + kStreamPatience).ok());
    EXPECT_EQ(DecodeReply({reply, sizeof reply}).value(), Reply::kAccepted);
    return fd;
  }

  // Sends raw bytes without a handshake. True: the endpoint closed the connection.
  bool ClosedAfter(std::string_view bytes) {
    UniqueFd fd;
    EXPECT_TRUE(ConnectTcp(to_->address(), Now() + seconds(5), &fd).ok());
    EXPECT_TRUE(SendAll(fd.get(), bytes, Now() + seconds(5)).ok());
    char reply[64];
    return ReceiveAll(fd.get(), reply, sizeof reply, Now() + seconds(5)).code ==
           SocketCode::kClosed;
  }
};

TEST_F(TcpTransportTest, MovesEveryByteWithinTheBudget) {
  Intake intake(Expected());
  to_->Open(kStreamKey, kSenders, &intake);
  Outflow out(kStreamKey, from_.get(), &budget_);
  ASSERT_TRUE(out.Send(Everything(), 0, true, Now() + seconds(20)).ok());
  EXPECT_TRUE(out.WaitPlaced(Now() + seconds(20)).ok());
  EXPECT_TRUE(intake.Wait(Now() + seconds(20)).ok());
  EXPECT_EQ(source_, target_);
  EXPECT_LE(budget_.peak(), budget_.limit());
  EXPECT_EQ(budget_.in_flight(), 0u);
  EXPECT_TRUE(out.Recheck().ok());
  source_[kFragmentBytes + 1] ^= 1;
  out.SetNames({"weights"});
  EXPECT_THAT(std::string(out.Recheck().message()),
              HasSubstr("tensor weights changed outside the update"));
  to_->Close(kStreamKey);
  from_->Close(kStreamKey);
}

TEST_F(TcpTransportTest, SendsNothingToReceiverWithAnotherKey) {
  from_ = Endpoint(1, seconds(5));
  Intake intake(Expected());
  to_->Open({Purpose::kTransition, 2, {{78}}}, kSenders, &intake);
  Outflow out(kStreamKey, from_.get(), &budget_);
  const absl::Status sent = out.Send(Everything(), 0, false, Now() + seconds(20));
  const absl::Status placed = out.WaitPlaced(Now() + seconds(20));
  EXPECT_FALSE(sent.ok() && placed.ok());
  EXPECT_THAT(std::string((sent.ok() ? placed : sent).message()),
              HasSubstr("the member does not have the epoch's key"));
  EXPECT_EQ(intake.bytes(), 0u);
  from_->Close(kStreamKey);
  to_->Close(kStreamKey);
}

TEST_F(TcpTransportTest, RefusesHellosOfOtherStreams) {
  Intake intake(Expected());
  to_->Open(kStreamKey, kSenders, &intake);
  const StreamHello good = HelloTo(kStreamKey);
  std::vector<StreamHello> wrong(9, good);
  wrong[0].epoch = 1;
  wrong[1].epoch = 3;
  wrong[2].purpose = Purpose::kSnapshot;
  wrong[3].purpose = Purpose::kNames;  // to_ answers no names
  wrong[4].sender = 3;                 // not in the world
  wrong[5].sender_incarnation = 1;     // another process of the member
  wrong[6].receiver = 1;
  wrong[7].receiver_incarnation = 1;
  wrong[8].sender = 2;  // the receiver's own id
  const uint64_t refused = ValueOf(Counter::kStreamRefused);
  uint64_t stale = 0;
  for (const StreamHello& hello : wrong) {
    StreamChallenge challenge{.known = true};
    const UniqueFd fd = Greet(hello, &challenge);
    EXPECT_EQ(challenge, StreamChallenge{});  // a refusal contains no proof
    EXPECT_TRUE(ClosesAfter(fd.get(), ""));
    EXPECT_EQ(to_->counters().dropped_stale + to_->counters().refused, ++stale);
    EXPECT_EQ(ValueOf(Counter::kStreamRefused) - refused, stale);
  }
  StreamChallenge challenge;
  Greet(good, &challenge);
  EXPECT_TRUE(challenge.known);
  to_->Close(kStreamKey);
}

// Wrong proofs are a recorded proof of another connection, the receiver's own, and another key's.
TEST_F(TcpTransportTest, RefusesProofsOfOtherConnections) {
  Intake intake(Expected());
  to_->Open(kStreamKey, kSenders, &intake);
  const StreamHello hello = HelloTo(kStreamKey);
  const std::string bytes = EncodeStreamHello(hello);
  StreamChallenge challenge;
  UniqueFd fd = Greet(hello, &challenge);
  const std::string recorded = ProofFor(bytes, EncodeStreamChallenge(challenge));
  ASSERT_TRUE(SendAll(fd.get(), recorded, Now() + kStreamPatience).ok());
  char reply[kReplySize];
  ASSERT_TRUE(ReceiveAll(fd.get(), reply, sizeof reply, Now() + kStreamPatience).ok());
  uint64_t garbage = 0;
  for (const int kind : {0, 1, 2}) {
    fd = Greet(hello, &challenge);
    ASSERT_TRUE(challenge.known);
    const std::string other = ProofFor(bytes, EncodeStreamChallenge(challenge), {{78}});
    EXPECT_TRUE(ClosesAfter(fd.get(), kind == 0   ? recorded
                                      : kind == 1 ? EncodeStreamProof(challenge.proof)
                                                  : other));
    EXPECT_EQ(to_->counters().dropped_garbage, ++garbage);
  }
  EXPECT_EQ(intake.bytes(), 0u);
  to_->Close(kStreamKey);
}

TEST_F(TcpTransportTest, WritesNoKeyInTheClear) {
  const StreamHello hello = HelloTo(kStreamKey);
  const std::string bytes = EncodeStreamHello(hello);
  const std::string challenge = ChallengeFor(bytes);
  const std::string all = bytes + challenge + ProofFor(bytes, challenge) + EncodeHeader({});
  for (const Key& key : {kStreamSecret, ConnectionKey(kStreamSecret, hello)}) {
    // Eight bytes suffice: the nonzero bytes of kStreamSecret are among its first eight.
    EXPECT_EQ(all.find(key.view().substr(0, 8)), std::string::npos);
  }
}

TEST_F(TcpTransportTest, CorruptedFragmentFailsTheReceiver) {
  Intake intake(Expected());
  to_->Open(kStreamKey, kSenders, &intake);
  FragmentHeader header;
  header.epoch = kStreamKey.epoch;
  header.bytes = 16;
  header.content = 1;
  const UniqueFd fd = Authenticate(kStreamKey);
  ASSERT_TRUE(
      SendAll(fd.get(), EncodeHeader(header) + std::string(16, 'x'), Now() + kStreamPatience).ok());
  char reply[kReplySize];
  ASSERT_TRUE(ReceiveAll(fd.get(), reply, sizeof reply, Now() + kStreamPatience).ok());
  EXPECT_EQ(DecodeReply({reply, sizeof reply}).value(), Reply::kRejected);
  EXPECT_EQ(to_->counters().corrupted, 1u);
  EXPECT_EQ(intake.Wait(Now()).code(), absl::StatusCode::kDataLoss);
  to_->Close(kStreamKey);
}

TEST_F(TcpTransportTest, SurvivesGarbageAndEveryTruncation) {
  Intake intake(Expected());
  to_->Open(kStreamKey, kSenders, &intake);
  EXPECT_TRUE(ClosedAfter(std::string(kStreamHelloSize, 'z')));
  EXPECT_EQ(to_->counters().dropped_garbage, 1u);
  const std::string hello = EncodeStreamHello(HelloTo(kStreamKey));
  for (size_t cut = 0; cut < hello.size(); ++cut) {
    UniqueFd fd;
    ASSERT_TRUE(ConnectTcp(to_->address(), Now() + seconds(5), &fd).ok());
    ASSERT_TRUE(SendAll(fd.get(), hello.substr(0, cut), Now() + seconds(5)).ok());
  }
  FragmentHeader header;
  header.epoch = kStreamKey.epoch;
  header.bytes = 16;
  const std::string all = EncodeHeader(header) + "0123456789";
  for (size_t cut = 0; cut < all.size(); ++cut) {
    const UniqueFd fd = Authenticate(kStreamKey);
    ASSERT_TRUE(SendAll(fd.get(), all.substr(0, cut), Now() + seconds(5)).ok());
  }
  Outflow out(kStreamKey, from_.get(), &budget_);
  ASSERT_TRUE(out.Send(Everything(), 0, false, Now() + seconds(20)).ok());
  EXPECT_TRUE(intake.Wait(Now() + seconds(20)).ok());
  EXPECT_EQ(source_, target_);
  EXPECT_TRUE(out.WaitPlaced(Now() + seconds(20)).ok());
  to_->Close(kStreamKey);
  from_->Close(kStreamKey);
}

TEST_F(TcpTransportTest, CountsConnectionsThatEndBeforeTheirProof) {
  Intake intake(Expected());
  to_->Open(kStreamKey, kSenders, &intake);
  UniqueFd silent;
  ASSERT_TRUE(ConnectTcp(to_->address(), Now() + kStreamPatience, &silent).ok());
  StreamChallenge challenge;
  UniqueFd challenged = Greet(HelloTo(kStreamKey), &challenge);
  UniqueFd member = Authenticate(kStreamKey);
  for (UniqueFd* fd : {&silent, &challenged, &member}) fd->reset();
  const Time deadline = Now() + kStreamPatience;
  while (to_->counters().refused < 2 && Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(to_->counters().refused, 2u);
  to_->Close(kStreamKey);
}

TEST_F(TcpTransportTest, NewConnectionOfMemberReplacesItsOldOne) {
  Intake intake(Expected());
  to_->Open(kStreamKey, kSenders, &intake);
  const UniqueFd old = Authenticate(kStreamKey);
  const UniqueFd fresh = Authenticate(kStreamKey);
  EXPECT_TRUE(ClosesAfter(old.get(), ""));
  EXPECT_FALSE(WaitReady(fresh.get(), POLLIN, Now()));
  to_->Close(kStreamKey);
}

// Keeps the transport's thread inside Take() until the test clears `held`.
class HeldSink final : public FragmentSink {
 public:
  absl::Status Take(MemberId /*sender*/, const FragmentHeader& /*header*/,
                    std::span<const char> /*bytes*/) override {
    entered = true;
    for (const Time deadline = Now() + kStreamPatience; held && Now() < deadline;) {
      std::this_thread::yield();
    }
    return absl::OkStatus();
  }
  void Corrupted(MemberId /*sender*/, const FragmentHeader& /*header*/) override {}
  std::atomic<bool> entered{false};
  std::atomic<bool> held{true};
};

TEST_F(TcpTransportTest, RefusedHelloDoesNotCloseAMembersConnection) {
  HeldSink sink;
  to_->Open(kStreamKey, kSenders, &sink);
  const UniqueFd member = Authenticate(kStreamKey);
  const std::string body(16, 'x');
  FragmentHeader header;
  header.epoch = kStreamKey.epoch;
  header.bytes = body.size();
  header.content = HashContent(body.data(), body.size(), header.offset);
  const auto send = [&] {
    EXPECT_TRUE(SendAll(member.get(), EncodeHeader(header) + body, Now() + kStreamPatience).ok());
  };
  const auto placed = [&] {
    char reply[kReplySize];
    return ReceiveAll(member.get(), reply, sizeof reply, Now() + kStreamPatience).ok() &&
           DecodeReply({reply, sizeof reply}).value() == Reply::kPlaced;
  };
  send();
  const Time deadline = Now() + kStreamPatience;
  while (!sink.entered && Now() < deadline) std::this_thread::yield();
  // The kernel has the hellos before the transport accepts their connections.
  StreamHello hello = HelloTo(kStreamKey);
  hello.sender_incarnation = 9;
  std::vector<UniqueFd> refused(50);
  for (UniqueFd& fd : refused) {
    ASSERT_TRUE(ConnectTcp(to_->address(), Now() + kStreamPatience, &fd).ok());
    ASSERT_TRUE(SendAll(fd.get(), EncodeStreamHello(hello), Now() + kStreamPatience).ok());
  }
  sink.held = false;
  EXPECT_TRUE(placed());
  while (to_->counters().refused < refused.size() && Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(to_->counters().refused, refused.size());
  send();
  EXPECT_TRUE(placed());
  to_->Close(kStreamKey);
}

TEST_F(TcpTransportTest, KeepsFewUnauthenticatedConnectionsAndServesMembers) {
  Intake intake(Expected());
  to_->Open(kStreamKey, kSenders, &intake);
  std::vector<UniqueFd> silent(300);
  for (UniqueFd& fd : silent) {
    ASSERT_TRUE(ConnectTcp(to_->address(), Now() + kStreamPatience, &fd).ok());
  }
  const Time deadline = Now() + kStreamPatience;
  while (to_->counters().refused < 300 - 64 && Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(to_->counters().refused, 300u - 64u);
  EXPECT_TRUE(ClosesAfter(silent.front().get(), ""));           // the oldest are dropped
  EXPECT_FALSE(WaitReady(silent.back().get(), POLLIN, Now()));  // the newest are kept
  // Challenged connections that never send a proof have their own limit.
  std::vector<UniqueFd> challenged;
  StreamChallenge challenge;
  for (int i = 0; i < 80; ++i) challenged.push_back(Greet(HelloTo(kStreamKey), &challenge));
  EXPECT_TRUE(ClosesAfter(challenged.front().get(), ""));
  Outflow out(kStreamKey, from_.get(), &budget_);
  ASSERT_TRUE(out.Send(Everything(), 0, false, Now() + kStreamPatience).ok());
  EXPECT_TRUE(intake.Wait(Now() + kStreamPatience).ok());
  EXPECT_TRUE(out.WaitPlaced(Now() + kStreamPatience).ok());
  to_->Close(kStreamKey);
  from_->Close(kStreamKey);
}

TEST_F(TcpTransportTest, AnswersNamesToMembersWithTheKey) {
  const Key key{{5}};
  to_->AnswerNames(key, [](std::string_view name) {
    return name == "a" ? std::optional<std::string>("value") : std::nullopt;
  });
  const WorldMember to{2, 0, to_->address()};
  auto answer = AskName(to, key, {1, 9, ""}, "a", Now() + kStreamPatience);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "value");
  answer = AskName(to, key, {1, 9, ""}, "b", Now() + kStreamPatience);
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->has_value());
  EXPECT_EQ(AskName(to, {{6}}, {1, 9, ""}, "a", Now() + kStreamPatience).status().code(),
            absl::StatusCode::kPermissionDenied);
  WorldMember before = to;
  before.incarnation = 7;  // another process at this address
  EXPECT_FALSE(AskName(before, key, {1, 9, ""}, "a", Now() + kStreamPatience).ok());
}

}  // namespace
}  // namespace rewire::state
