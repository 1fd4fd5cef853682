// Slow peers: a connection with any progress stays open. A connection without progress fails at its
// deadline and not before. A receiver that reads nothing does not delay other receivers. Tests of
// deadlines use a simulated clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <numeric>

#include "reconfig/state/stream/content.h"
#include "reconfig/state/stream/tcp_inbound.h"
#include "reconfig/state/stream/tcp_outbound.h"
#include "reconfig/state/stream/tcp_transport.h"
#include "tests/unit/state/stream/scripted_receiver.h"

namespace rewire::state {
namespace {

using ::testing::ContainsRegex;

constexpr Duration kStall = seconds(1);
constexpr Duration kAlmost = milliseconds(999);

// A sender with a simulated clock, and the socket of its receiver.
class SlowReceiver : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string address;
    ASSERT_TRUE(ListenTcp("127.0.0.1:0", &listener_, &address).ok());
    const int small = 4096;
    setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    out_.emplace(kStreamKey, WorldMember{1, 0, ""}, WorldMember{2, 0, address}, seconds(10), kStall,
                 now_);
    for (int f = 0; f < kFragments; ++f) {
      OutFragment fragment;
      fragment.header.bytes = static_cast<uint32_t>(bytes_.size());
      fragment.bytes = bytes_;
      out_->Add(
          fragment, [this](absl::Status s) { ended_.push_back(std::move(s)); }, now_);
    }
    out_->OnTick(now_);
    ASSERT_TRUE(Accept(listener_.get(), Now() + kStreamPatience, &peer_).ok());
    Ready(POLLOUT);
    char hello[kStreamHelloSize];
    ASSERT_TRUE(ReceiveAll(peer_.get(), hello, sizeof hello, Now() + kStreamPatience).ok());
    ASSERT_TRUE(
        SendAll(peer_.get(), ChallengeFor({hello, sizeof hello}), Now() + kStreamPatience).ok());
    Ready(POLLIN);
    char proof[kStreamProofSize];
    ASSERT_TRUE(ReceiveAll(peer_.get(), proof, sizeof proof, Now() + kStreamPatience).ok());
    Answer(Reply::kAccepted);
    Ready(POLLIN);
    // The socket buffers are full, and the sender has more to send.
    ASSERT_TRUE(out_->WantsWrite());
  }
  void Answer(Reply reply) {
    ASSERT_TRUE(SendAll(peer_.get(), EncodeReply(reply), Now() + kStreamPatience).ok());
  }
  void Ready(short events) {
    ASSERT_TRUE(WaitReady(out_->fd(), events, Now() + kStreamPatience));
    out_->OnReady(now_, events);
  }
  // Reads sent bytes until the sender can send more or has sent all.
  void TakeSome() {
    while (taken_ < kAll && !WaitReady(out_->fd(), POLLOUT, Now())) TakeAtLeast(taken_ + 1);
  }
  // Reads until `bytes` bytes have been read in total.
  void TakeAtLeast(size_t bytes) {
    char taken[65536];
    while (taken_ < bytes) {
      ASSERT_TRUE(WaitReady(peer_.get(), POLLIN, Now() + kStreamPatience));
      const ssize_t n = recv(peer_.get(), taken, sizeof taken, 0);
      ASSERT_GT(n, 0);
      taken_ += static_cast<size_t>(n);
    }
  }

  static constexpr int kFragments = 12;
  static constexpr size_t kAll = kFragments * (kHeaderSize + kFragmentBytes);
  const std::vector<char> bytes_ = std::vector<char>(kFragmentBytes, 'x');
  Time now_ = Now();
  UniqueFd listener_;
  UniqueFd peer_;
  std::vector<absl::Status> ended_;
  std::optional<TcpOutbound> out_;
  size_t taken_ = 0;
};

TEST_F(SlowReceiver, IsWaitedForDuringProgress) {
  int rounds = 0;
  while (out_->WantsWrite()) {
    now_ += kAlmost;
    TakeSome();
    Ready(POLLOUT);
    out_->OnTick(now_);
    ASSERT_THAT(ended_, ::testing::IsEmpty()) << ended_.front();
    ++rounds;
  }
  EXPECT_GT(rounds, 1);  // the total time exceeds the deadline
  TakeAtLeast(kAll);
  for (size_t f = 0; f < kFragments; ++f) {
    now_ += kAlmost;
    Answer(Reply::kPlaced);
    Ready(POLLIN);
    out_->OnTick(now_);
    ASSERT_EQ(ended_.size(), f + 1);
    EXPECT_TRUE(ended_.back().ok()) << ended_.back();
  }
  // An idle connection has no deadline.
  EXPECT_EQ(out_->NextTick(), Time::max());
  now_ += 100 * kStall;
  out_->OnTick(now_);
  EXPECT_GE(out_->fd(), 0);
}

TEST_F(SlowReceiver, TimesOutWithoutProgress) {
  EXPECT_EQ(out_->NextTick(), now_ + kStall);
  now_ += kStall - nanoseconds(1);
  out_->OnTick(now_);
  EXPECT_THAT(ended_, ::testing::IsEmpty());
  now_ += nanoseconds(1);
  out_->OnTick(now_);
  ASSERT_EQ(ended_.size(), static_cast<size_t>(kFragments));
  for (const absl::Status& s : ended_) {
    EXPECT_EQ(s.code(), absl::StatusCode::kDeadlineExceeded) << s;
    EXPECT_THAT(std::string(s.message()),
                ContainsRegex("stream to member 2 at .*: no progress for"));
  }
  EXPECT_LT(out_->fd(), 0);
}

// The sender's process was stopped or had no processor while the peer made progress.
TEST_F(SlowReceiver, DoesNotTimeOutWithPendingReply) {
  TakeAtLeast(kHeaderSize + kFragmentBytes);
  Answer(Reply::kPlaced);
  ASSERT_TRUE(WaitReady(out_->fd(), POLLIN, Now() + kStreamPatience));
  now_ += 5 * kStall;
  out_->OnTick(now_);
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_.front().ok()) << ended_.front();
  EXPECT_EQ(out_->NextTick(), now_ + kStall);
}

TEST_F(SlowReceiver, DoesNotTimeOutAfterItMadeRoom) {
  TakeSome();
  now_ += 5 * kStall;
  out_->OnTick(now_);
  EXPECT_THAT(ended_, ::testing::IsEmpty());
  EXPECT_EQ(out_->NextTick(), now_ + kStall);
}

// A receiver with a simulated clock, and the socket of its sender.
class SlowSender : public ::testing::Test, public FragmentSink {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    peer_.reset(pair[0]);
    streams_.self = 2;
    streams_.open[{kStreamKey.purpose, kStreamKey.epoch}] = {kStreamKey.secret, {{1, 0, ""}}, this};
    in_.emplace(UniqueFd(pair[1]), 0, &streams_, kStall, now_);
    header_.epoch = kStreamKey.epoch;
    header_.bytes = 10;
    header_.content = HashContent("0123456789", 10, 0);
  }
  absl::Status Take(MemberId, const FragmentHeader&, std::span<const char>) override {
    ++taken_;
    return absl::OkStatus();
  }
  void Corrupted(MemberId, const FragmentHeader&) override { ADD_FAILURE() << "corrupted"; }
  void Say(std::string_view bytes) {
    ASSERT_TRUE(SendAll(peer_.get(), bytes, Now() + kStreamPatience).ok());
    in_->OnReadable(now_);
    in_->OnTick(now_);
  }

  // Completes the handshake without a delay.
  void ProveSelf() {
    Say(hello_);
    char challenge[kStreamChallengeSize];
    ASSERT_TRUE(ReceiveAll(peer_.get(), challenge, sizeof challenge, Now() + kStreamPatience).ok());
    Say(ProofFor(hello_, {challenge, sizeof challenge}));
  }

  const std::string hello_ = EncodeStreamHello({Purpose::kTransition, 2, 1, 2, 0, 0, {}});
  Time now_ = Now();
  StreamTable streams_;
  UniqueFd peer_;
  std::optional<TcpInbound> in_;
  FragmentHeader header_;
  int taken_ = 0;
};

TEST_F(SlowSender, IsWaitedForByteByByte) {
  ProveSelf();
  for (const char byte : EncodeHeader(header_) + "0123456789" + EncodeHeader(header_)) {
    now_ += kAlmost;
    Say({&byte, 1});
    ASSERT_FALSE(in_->closed());
  }
  EXPECT_EQ(taken_, 1);
}

// Arriving bytes do not extend the deadline of a hello or a proof.
TEST_F(SlowSender, HasAFixedTimeForItsHandshake) {
  size_t said = 0;
  while (!in_->closed() && said < hello_.size()) {
    now_ += kAlmost;
    Say(hello_.substr(said++, 1));
  }
  EXPECT_TRUE(in_->closed());
  EXPECT_EQ(said, 6u);
  EXPECT_EQ(streams_.refused.load(), 1u);
  SetUp();
  Say(hello_);
  for (said = 0; !in_->closed() && said < kStreamProofSize; ++said) {
    now_ += kAlmost;
    Say("x");
  }
  EXPECT_EQ(said, 6u);
  EXPECT_EQ(streams_.refused.load(), 2u);
}

TEST_F(SlowSender, MayBeIdleOnlyBetweenFragments) {
  const std::string fragment = EncodeHeader(header_) + "0123456789";
  ProveSelf();
  Say(fragment);
  now_ += 100 * kStall;
  in_->OnTick(now_);
  ASSERT_FALSE(in_->closed());
  Say(fragment);
  EXPECT_EQ(taken_, 2);
  for (size_t said = 1; said < fragment.size(); ++said) {
    SetUp();
    ProveSelf();
    Say(std::string_view(fragment).substr(0, said));
    now_ += kAlmost;
    in_->OnTick(now_);
    ASSERT_FALSE(in_->closed()) << said;
    now_ += kStall;
    in_->OnTick(now_);
    EXPECT_TRUE(in_->closed()) << said;
  }
}

TEST(SlowReceivers, DoNotDelayOtherReceivers) {
  ScriptedReceiver slow(Until::kEnd);
  slow.Pause();
  ScriptedReceiver quick(Until::kEnd);
  TcpOptions options;
  options.member = 1;
  auto from = TcpTransport::Start(options);
  ASSERT_TRUE(from.ok()) << from.status();
  const std::vector<char> bytes(kFragmentBytes, 'x');
  std::atomic<int> to_slow{0};
  std::atomic<int> to_quick{0};
  const auto send = [&](MemberId to, const ScriptedReceiver& receiver, std::atomic<int>* count) {
    OutFragment fragment;
    fragment.header.bytes = static_cast<uint32_t>(bytes.size());
    fragment.bytes = bytes;
    (*from)->Send(kStreamKey, {to, 0, receiver.address()}, fragment,
                  [count](const absl::Status& s) {
                    EXPECT_TRUE(s.ok()) << s;
                    ++*count;
                  });
  };
  const auto wait = [](const std::atomic<int>& count, int n) {
    const Time deadline = Now() + kStreamPatience;
    while (count < n && Now() < deadline) std::this_thread::yield();
    return count.load();
  };
  for (int f = 0; f < 12; ++f) send(2, slow, &to_slow);
  for (int f = 0; f < 12; ++f) send(3, quick, &to_quick);
  EXPECT_EQ(wait(to_quick, 12), 12);
  EXPECT_EQ(to_slow, 0);
  slow.Resume();
  EXPECT_EQ(wait(to_slow, 12), 12);
  (*from)->Close(kStreamKey);
}

}  // namespace
}  // namespace rewire::state
