#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "reconfig/base/hash.h"
#include "reconfig/base/socket.h"
#include "reconfig/stream/ask_name.h"
#include "reconfig/stream/content.h"
#include "reconfig/stream/intake.h"
#include "reconfig/stream/outflow.h"
#include "reconfig/stream/tcp_transport.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

constexpr StreamKey kKey{Purpose::kTransition, 2, 77};

std::unique_ptr<TcpTransport> Endpoint(MemberId member, Duration connect = seconds(10)) {
  TcpOptions options;
  options.member = member;
  options.connect = connect;
  auto started = TcpTransport::Start(options);
  EXPECT_TRUE(started.ok()) << started.status();
  return std::move(*started);
}

std::vector<char> Numbers(size_t bytes) {
  std::vector<char> v(bytes);
  std::iota(v.begin(), v.end(), 0);
  return v;
}

class StreamTest : public ::testing::Test {
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
    out.source.data = source_.data();
    out.target = {2, 0, to_->address()};
    return {out};
  }
  std::vector<Incoming> Expected() {
    return {{0, 0, kBytes, 1, {MemoryKind::kHost, target_.data(), nullptr}}};
  }

  // Raw bytes of a stranger; true when the endpoint closed the connection.
  bool ClosedAfter(std::string_view bytes) {
    UniqueFd fd;
    EXPECT_TRUE(ConnectTcp(to_->address(), Now() + seconds(5), &fd).ok());
    EXPECT_TRUE(SendAll(fd.get(), bytes, Now() + seconds(5)).ok());
    char reply[64];
    return ReceiveAll(fd.get(), reply, sizeof reply, Now() + seconds(5)).code ==
           SocketCode::kClosed;
  }
};

TEST_F(StreamTest, EveryByteArrivesWithinTheBudget) {
  Intake intake(Expected());
  to_->Open(kKey, &intake);
  Outflow out(kKey, from_.get(), &budget_);
  ASSERT_TRUE(out.Send(Everything(), 0, true, Now() + seconds(20)).ok());
  EXPECT_TRUE(out.WaitPlaced(Now() + seconds(20)).ok());
  EXPECT_TRUE(intake.Wait(Now() + seconds(20)).ok());
  EXPECT_EQ(source_, target_);
  EXPECT_LE(budget_.peak(), budget_.limit());
  EXPECT_EQ(budget_.in_flight(), 0u);
  EXPECT_TRUE(out.Recheck().ok());
  source_[kFragmentBytes + 1] ^= 1;
  EXPECT_THAT(std::string(out.Recheck().message()), HasSubstr("changed outside the update"));
  to_->Close(kKey);
  from_->Close(kKey);
}

TEST_F(StreamTest, TheWrongSecretIsDroppedAndCounted) {
  from_ = Endpoint(1, milliseconds(100));
  Intake intake(Expected());
  to_->Open({Purpose::kTransition, 2, 78}, &intake);
  Outflow out(kKey, from_.get(), &budget_);
  const absl::Status sent = out.Send(Everything(), 0, false, Now() + seconds(5));
  const absl::Status placed = out.WaitPlaced(Now() + seconds(5));
  EXPECT_FALSE(sent.ok() && placed.ok());
  EXPECT_GT(to_->counters().dropped_stale, 0u);
  EXPECT_EQ(intake.bytes(), 0u);
  from_->Close(kKey);
  to_->Close({Purpose::kTransition, 2, 78});
}

TEST_F(StreamTest, ACorruptedFragmentFailsTheReceiver) {
  Intake intake(Expected());
  to_->Open(kKey, &intake);
  FragmentHeader header;
  header.epoch = kKey.epoch;
  header.secret = kKey.secret;
  header.bytes = 16;
  header.content = 1;
  EXPECT_TRUE(
      ClosedAfter(EncodeGreeting({kKey, 1, 0}) + EncodeHeader(header) + std::string(16, 'x')));
  EXPECT_EQ(to_->counters().corrupted, 1u);
  EXPECT_EQ(intake.Wait(Now()).code(), absl::StatusCode::kDataLoss);
  to_->Close(kKey);
}

TEST_F(StreamTest, GarbageAndEveryCutAreSurvived) {
  Intake intake(Expected());
  to_->Open(kKey, &intake);
  EXPECT_TRUE(ClosedAfter(std::string(kGreetingSize, 'z')));
  EXPECT_EQ(to_->counters().dropped_garbage, 1u);
  FragmentHeader header;
  header.epoch = kKey.epoch;
  header.secret = kKey.secret;
  header.bytes = 16;
  const std::string all = EncodeGreeting({kKey, 1, 0}) + EncodeHeader(header) + "0123456789";
  for (size_t cut = 0; cut < all.size(); ++cut) {
    UniqueFd fd;
    ASSERT_TRUE(ConnectTcp(to_->address(), Now() + seconds(5), &fd).ok());
    ASSERT_TRUE(SendAll(fd.get(), all.substr(0, cut), Now() + seconds(5)).ok());
  }
  Outflow out(kKey, from_.get(), &budget_);
  ASSERT_TRUE(out.Send(Everything(), 0, false, Now() + seconds(20)).ok());
  EXPECT_TRUE(intake.Wait(Now() + seconds(20)).ok());
  EXPECT_EQ(source_, target_);
  EXPECT_TRUE(out.WaitPlaced(Now() + seconds(20)).ok());
  to_->Close(kKey);
  from_->Close(kKey);
}

TEST_F(StreamTest, NamesAreAnsweredToWhoKnowsTheSecret) {
  to_->AnswerNames(5, [](std::string_view name) {
    return name == "a" ? std::optional<std::string>("value") : std::nullopt;
  });
  auto answer = AskName(to_->address(), 5, 1, "a", Now() + seconds(5));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "value");
  answer = AskName(to_->address(), 5, 1, "b", Now() + seconds(5));
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->has_value());
  EXPECT_FALSE(AskName(to_->address(), 6, 1, "a", Now() + seconds(5)).ok());
}

TEST(ContentTest, IsTheHashOfBase) {
  const std::vector<char> bytes = Numbers(1000);
  for (size_t n = 0; n < 200; ++n) {
    EXPECT_EQ(HashContent(bytes.data(), n, 64), ContentHash(bytes.data(), n, 64)) << n;
  }
}

TEST(FragmentTest, EveryFlippedBitIsRefused) {
  FragmentHeader header{3, 4, 5, 6, 7, 8, 9};
  const std::string good = EncodeHeader(header);
  ASSERT_EQ(DecodeHeader(good), header);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(DecodeHeader(bad)) << bit;
  }
}

}  // namespace
}  // namespace rewire
