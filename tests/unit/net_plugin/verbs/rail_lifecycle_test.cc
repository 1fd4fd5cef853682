// One rail between two sides, from its first join to its next after a failure. The test carries the
// frames and moves the clock.
#include "net_plugin/verbs/rail_lifecycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/rdma/fabric.h"

namespace rewire::net {
namespace {

using State = RailLifecycle::State;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Side final : public RailLifecycle::Owner {
 public:
  Side(bool sending, const std::shared_ptr<Nic>& nic, const ConnectionOptions& options)
      : options_(options),
        name_(sending ? "sender" : "receiver"),
        peer_(sending ? "receiver" : "sender"),
        context_{.sending = sending,
                 .options = options_,
                 .peer = peer_,
                 .ring = ring_.get(),
                 .owner = this,
                 .seed = 7},
        rail(0, false, nic, &context_) {}

  void SendFrame(const RailLifecycle& from, FrameKind kind, std::string payload) override {
    FrameHeader header;
    header.kind = kind;
    header.offset = from.number();
    header.sequence = from.attempt();
    sent.emplace_back(header, std::move(payload));
  }
  std::string Report() override { return name_ + "'s report"; }
  absl::Status Settle(const RailLifecycle&, std::string_view report) override {
    settled.emplace_back(report);
    return absl::OkStatus();
  }
  absl::Status MalformedFrame(const FrameHeader& header, const std::string& why) const override {
    return absl::DataLossError(FrameText(header) + ": " + why);
  }
  void Fail(const absl::Status& status) override { ADD_FAILURE() << status; }

  // Takes the frames that the other side has sent, background work, and completions.
  absl::Status Move(Side* other) {
    for (const auto& [header, payload] : std::exchange(other->sent, {})) {
      if (absl::Status status = rail.TakeFrame(header, payload); !status.ok()) return status;
    }
    rail.KeepTime();
    if (!rail.rail().made()) return absl::OkStatus();
    std::array<RailEvent, Rail::kBatch> events;
    const absl::StatusOr<size_t> polled = rail.rail().Poll(events);
    if (!polled.ok()) return polled.status();
    for (size_t i = 0; i < *polled; ++i) {
      if (events[i].kind == RailEvent::Kind::kWritten && rail.state() == State::kProbing) {
        rail.EndProbe();
      }
    }
    rail.EndPoll(*polled == 0);
    return absl::OkStatus();
  }
  [[nodiscard]] std::vector<FrameKind> Kinds() const {
    std::vector<FrameKind> kinds;
    for (const auto& [header, payload] : sent) kinds.push_back(header.kind);
    return kinds;
  }

 private:
  const ConnectionOptions options_;
  const std::string name_;
  const std::string peer_;
  const std::unique_ptr<ClearRing> ring_ = std::make_unique<ClearRing>();
  RailLifecycle::Context context_;

 public:
  RailLifecycle rail;
  std::vector<std::pair<FrameHeader, std::string>> sent;
  std::vector<std::string> settled;
};

class RailLifecycleTest : public ::testing::Test {
 protected:
  RailLifecycleTest() {
    options_.now = [this] { return now_; };
    options_.run = [](const std::function<void()>& work) { work(); };
    sender_ = std::make_unique<Side>(true, Open("s0"), options_);
    receiver_ = std::make_unique<Side>(false, Open("r0"), options_);
  }
  std::shared_ptr<Nic> Open(const std::string& device) {
    fabric_.AddDevice({device});
    const auto driver = fabric_.MakeDriver({device});
    return *Nic::Open(driver.get(), device, driver->Devices()->front().ports[0]);
  }
  // Moves both sides until both rails have this state.
  void MoveUntil(State state) {
    for (int turn = 0; turn < 1000; ++turn) {
      fabric_.Advance(microseconds(10));
      ASSERT_EQ(receiver_->Move(sender_.get()), absl::OkStatus());
      ASSERT_EQ(sender_->Move(receiver_.get()), absl::OkStatus());
      if (sender_->rail.state() == state && receiver_->rail.state() == state) return;
    }
    FAIL() << "the rails did not get to the state";
  }
  // The sender's attempt, refused by the receiver.
  void Refuse() {
    sender_->rail.BeginJoin();
    sender_->rail.KeepTime();
    FrameHeader header;
    header.kind = FrameKind::kRefused;
    header.sequence = sender_->rail.attempt();
    ASSERT_EQ(sender_->rail.TakeFrame(header, "no memory"), absl::OkStatus());
    ASSERT_EQ(sender_->rail.state(), State::kDown);
  }

  Time now_ = Time{} + std::chrono::hours(1);
  rdma::fake::Fabric fabric_;
  ConnectionOptions options_;
  std::unique_ptr<Side> sender_;
  std::unique_ptr<Side> receiver_;
};

TEST_F(RailLifecycleTest, SenderIsUpAfterItsProbes) {
  sender_->rail.BeginJoin();
  sender_->rail.KeepTime();
  EXPECT_THAT(sender_->Kinds(), ElementsAre(FrameKind::kJoin));
  EXPECT_EQ(sender_->rail.state(), State::kOffered);
  ASSERT_NO_FATAL_FAILURE(MoveUntil(State::kUp));
  EXPECT_EQ(receiver_->rail.attempt(), 1u);
  EXPECT_NE(sender_->rail.peer_ring(), receiver_->rail.peer_ring());
}

TEST_F(RailLifecycleTest, SettlesAfterTheReportsOfBothSides) {
  sender_->rail.BeginJoin();
  ASSERT_NO_FATAL_FAILURE(MoveUntil(State::kUp));
  sender_->rail.Break("a test");
  EXPECT_EQ(sender_->rail.state(), State::kDraining);
  for (int i = 0; i < 100 && sender_->rail.state() == State::kDraining; ++i) {
    fabric_.Advance(microseconds(10));
    now_ += milliseconds(10);
    ASSERT_EQ(sender_->Move(receiver_.get()), absl::OkStatus());
  }
  // The peer may still deliver to its side: nothing is settled yet.
  EXPECT_EQ(sender_->rail.state(), State::kFenced);
  EXPECT_THAT(sender_->settled, IsEmpty());
  ASSERT_NO_FATAL_FAILURE(MoveUntil(State::kDown));
  EXPECT_THAT(sender_->settled, ElementsAre("receiver's report"));
  EXPECT_THAT(receiver_->settled, ElementsAre("sender's report"));
  EXPECT_EQ(sender_->rail.why(), "a test");
  // The next attempt joins the rail again.
  sender_->rail.BeginJoin();
  ASSERT_NO_FATAL_FAILURE(MoveUntil(State::kUp));
  EXPECT_EQ(receiver_->rail.attempt(), 2u);
}

TEST_F(RailLifecycleTest, RefusedAttemptsAreRetriedAtGrowingIntervals) {
  for (const Duration pause : {milliseconds(100), milliseconds(200), milliseconds(400)}) {
    ASSERT_NO_FATAL_FAILURE(Refuse());
    EXPECT_EQ(sender_->rail.why(), "no memory");
    EXPECT_FALSE(sender_->rail.IsDue(now_ + pause / 2 - nanoseconds(1)));
    EXPECT_TRUE(sender_->rail.IsDue(now_ + pause * 3 / 2));
  }
}

TEST_F(RailLifecycleTest, AttemptWithoutAnswerTimesOut) {
  sender_->rail.BeginJoin();
  sender_->rail.KeepTime();
  now_ += options_.answer - nanoseconds(1);
  sender_->rail.KeepTime();
  EXPECT_EQ(sender_->rail.state(), State::kOffered);
  now_ += nanoseconds(1);
  sender_->rail.KeepTime();
  EXPECT_EQ(sender_->rail.state(), State::kDown);
  EXPECT_THAT(sender_->Kinds(), ElementsAre(FrameKind::kJoin, FrameKind::kRefused));
  EXPECT_THAT(sender_->rail.why(), HasSubstr("no answer in time (first answer: 300000 ms)"));
}

TEST_F(RailLifecycleTest, IgnoresFramesOfAbandonedAttempts) {
  ASSERT_NO_FATAL_FAILURE(Refuse());
  ASSERT_NO_FATAL_FAILURE(Refuse());
  FrameHeader late;
  late.kind = FrameKind::kJoined;
  late.sequence = 1;
  EXPECT_EQ(sender_->rail.TakeFrame(late, "anything"), absl::OkStatus());
  EXPECT_EQ(sender_->rail.state(), State::kDown);
}

TEST_F(RailLifecycleTest, RefusalsOfMalformedFramesHaveReasons) {
  const auto why = [](Side* side, FrameKind kind, uint64_t attempt, std::string_view payload) {
    FrameHeader header;
    header.kind = kind;
    header.sequence = attempt;
    return std::string(side->rail.TakeFrame(header, payload).message());
  };
  EXPECT_THAT(why(sender_.get(), FrameKind::kReady, 0, ""), HasSubstr("only the sender says"));
  EXPECT_THAT(why(sender_.get(), FrameKind::kJoin, 0, ""), HasSubstr("only the sender offers"));
  EXPECT_THAT(why(receiver_.get(), FrameKind::kJoined, 0, ""), HasSubstr("only the receiver"));
  EXPECT_THAT(why(receiver_.get(), FrameKind::kJoin, 0, ""), HasSubstr("attempt must exceed 0"));
  EXPECT_THAT(why(receiver_.get(), FrameKind::kJoin, 1, "x"), HasSubstr("malformed offer"));
  sender_->rail.BeginJoin();
  ASSERT_NO_FATAL_FAILURE(MoveUntil(State::kUp));
  EXPECT_THAT(why(sender_.get(), FrameKind::kRefused, 1, ""), HasSubstr("the refused rail is up"));
}

}  // namespace
}  // namespace rewire::net
