// The program hears of a version only while a stream or the copies wait for one. State that changes
// after its update has ended.
#include "reconfig/elastic/participant/update_snapshots.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "reconfig/base/counters.h"
#include "reconfig/state/stream/tcp_transport.h"
#include "tests/unit/state/snapshot/start_world.h"

namespace rewire::elastic {
namespace {

bool Notifies(UpdateGate* gate) {
  gate->Begin();
  return gate->End();
}

TEST(UpdateSnapshotsTest, StreamedVersionIsReportedUntilItIsCleared) {
  UpdateGate gate;
  UpdateSnapshots snapshots(&gate, seconds(1), seconds(1));
  EXPECT_FALSE(Notifies(&gate));
  snapshots.SetStreamed(2);
  EXPECT_TRUE(Notifies(&gate));
  snapshots.ClearStreamed();
  EXPECT_FALSE(Notifies(&gate));
}

TEST(UpdateSnapshotsTest, FreezeWithoutSnapshotterDoesNothing) {
  UpdateGate gate;
  UpdateSnapshots snapshots(&gate, seconds(1), seconds(1));
  snapshots.Freeze();
  EXPECT_EQ(snapshots.snapshotter(), nullptr);
  EXPECT_FALSE(snapshots.started());
}

// Slot 0 of a world of two, whose copies slot 1 keeps. The device work of an update that is not
// complete when the update returns is a change of the state here.
class LateStateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (MemberId m : {0, 1}) {
      state::TcpOptions options;
      options.member = m;
      auto transport = state::TcpTransport::Start(options);
      ASSERT_TRUE(transport.ok());
      transports_.push_back(*std::move(transport));
    }
    const World world{3, {{0, 0, transports_[0]->address()}, {1, 0, transports_[1]->address()}}};
    next_ = Make(1);
    state::StartWorld(next_.get(), world, {{7}}, 1, Tensors(1));
    snapshots_.SetSnapshotter(Make(0));
    snapshots_.StartWorld(world, {{7}}, 0, state::LayoutOf(Tensors(0), 2), Tensors(0), {});
  }
  std::unique_ptr<state::Snapshotter> Make(MemberId m) {
    state::Snapshotter::Options options;
    options.stall = seconds(60);
    return std::make_unique<state::Snapshotter>(transports_[m].get(), &budget_, options);
  }
  std::vector<state::PlacedTensor> Tensors(uint32_t slot) {
    state::PlacedTensor t;
    t.shape = {"t", state_.size(), 1, state::Division::kSharded, state::Change::kConstant};
    t.part = state::ShardOf(state_.size(), 2, slot);
    t.place.data = state_.data() + t.part.begin;
    return {t};
  }
  // Ends an update, waits for the copies that it begins, changes the state again if `late`, and
  // begins the next update.
  void Update(uint64_t version, bool late) {
    ++state_[0];
    snapshots_.Take(version);
    ASSERT_TRUE(snapshots_.WaitTaken());
    if (late) ++state_[0];
    snapshots_.CopyLeftOut(version);
    snapshots_.AwaitCopies(version);
  }
  static constexpr Duration kNotice = milliseconds(50);

  [[nodiscard]] static uint64_t Changed() { return ValueOf(Counter::kSnapshotChanged); }

  std::vector<char> state_ = std::vector<char>(1000);
  state::Budget budget_{uint64_t{1} << 20};
  std::vector<std::unique_ptr<state::TcpTransport>> transports_;
  std::unique_ptr<state::Snapshotter> next_;
  UpdateGate gate_;
  UpdateSnapshots snapshots_{&gate_, seconds(60), kNotice};
};

TEST_F(LateStateTest, IsCopiedAgainAndThenAtTheNextUpdate) {
  const uint64_t before = Changed();
  Update(1, true);
  EXPECT_EQ(Changed(), before + 1);
  EXPECT_EQ(next_->BuddyVersions(), std::vector<uint64_t>{1});
  EXPECT_EQ(next_->kept().Piece(1, 0)[0], state_[0]);
  Update(2, true);
  const std::vector<uint64_t> two = {1, 2};
  EXPECT_EQ(next_->BuddyVersions(), two);
  EXPECT_EQ(next_->kept().Piece(2, 0)[0], state_[0]);
  snapshots_.Take(3);
  ASSERT_TRUE(snapshots_.WaitTaken());
  EXPECT_EQ(next_->BuddyVersions(), two) << "the next update has not begun";
  snapshots_.TakeRestored(4);
  ASSERT_TRUE(snapshots_.WaitTaken());
  EXPECT_EQ(next_->BuddyVersions().back(), 4u) << "no device work is left";
  EXPECT_EQ(Changed(), before + 1);
}

TEST_F(LateStateTest, EachPowerOfTwoIsCompared) {
  const uint64_t before = Changed();
  for (const uint64_t version : {1, 2, 3, 4, 5, 6, 7}) Update(version, version == 3);
  EXPECT_EQ(Changed(), before);
  Update(8, true);
  EXPECT_EQ(Changed(), before + 1);
}

// The next slot knows that this member is lost, and this member does not.
TEST_F(LateStateTest, ARefusedCopyHoldsTheNextUpdate) {
  Update(1, false);
  next_->Freeze();
  snapshots_.Take(2);
  ASSERT_TRUE(snapshots_.WaitTaken());
  const Time begin = Now();
  snapshots_.AwaitCopies(2);
  EXPECT_GE(Now() - begin, kNotice);
  EXPECT_EQ(next_->BuddyVersions(), std::vector<uint64_t>{1});
}

// Otherwise an update could begin between the end of the copy and the notice of the loss.
TEST_F(LateStateTest, ALossIsKnownBeforeItEndsACopy) {
  std::promise<void> asked;
  std::promise<void> answer;
  state::Snapshotter::Options options;
  options.stall = seconds(60);
  options.node_of = [&](const WorldMember&) {
    asked.set_value();
    answer.get_future().wait();
    return std::string();
  };
  snapshots_.SetSnapshotter(
      std::make_unique<state::Snapshotter>(transports_[0].get(), &budget_, std::move(options)));
  const World world{3, {{0, 0, transports_[0]->address()}, {1, 0, transports_[1]->address()}}};
  snapshots_.StartWorld(world, {{7}}, 0, state::LayoutOf(Tensors(0), 2), Tensors(0), {});
  snapshots_.Take(1);
  asked.get_future().wait();
  std::thread loss([this] { snapshots_.EndWorld(); });
  EXPECT_TRUE(gate_.WaitBroken(seconds(10)));
  answer.set_value();
  loss.join();
}

TEST_F(LateStateTest, OnlyTheFirstRefusalCounts) {
  Update(1, false);
  next_->Freeze();
  snapshots_.Take(2);
  ASSERT_TRUE(snapshots_.WaitTaken());
  EXPECT_TRUE(snapshots_.snapshotter()->TakeCutOff());
  EXPECT_FALSE(snapshots_.snapshotter()->TakeCutOff()) << "known by now";
  snapshots_.Take(3);
  ASSERT_TRUE(snapshots_.WaitTaken());
  EXPECT_FALSE(snapshots_.snapshotter()->TakeCutOff()) << "no copy arrived in between";
}

}  // namespace
}  // namespace rewire::elastic
