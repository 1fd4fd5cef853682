// The thread that copies, and a next slot that does not answer.
#include "reconfig/state/snapshot/snapshotter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "reconfig/base/socket.h"
#include "reconfig/state/stream/peer_offer.h"
#include "reconfig/state/stream/tcp_transport.h"
#include "tests/unit/state/snapshot/start_world.h"

namespace rewire::state {
namespace {

constexpr uint64_t kElements = 3 << 20;
constexpr Key kSecret{{7}};

class SnapshotterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::iota(state_.begin(), state_.end(), 0);
    for (MemberId m : {0, 1}) {
      TcpOptions options;
      options.member = m;
      options.connect = options.stall = seconds(600);
      auto transport = TcpTransport::Start(options);
      ASSERT_TRUE(transport.ok());
      transports_.push_back(std::move(*transport));
    }
  }
  // Returns a sharded tensor of bytes, with this slot's half of it.
  std::vector<PlacedTensor> Tensors(uint32_t slot) {
    PlacedTensor t;
    t.shape = {"t", kElements, 1, Division::kSharded, Change::kConstant};
    t.part = ShardOf(kElements, 2, slot);
    t.place.data = state_.data() + t.part.begin;
    return {t};
  }
  World Of(const std::string& next) {
    return {3, {{0, 0, transports_[0]->address()}, {1, 0, next}}};
  }
  std::unique_ptr<Snapshotter> Make(MemberId m, const std::string& node) {
    Snapshotter::Options options;
    options.stall = seconds(600);
    options.node_of = [node](const WorldMember&) { return node; };
    options.answers = [this](const WorldMember&) { return answers_.load(); };
    return std::make_unique<Snapshotter>(transports_[m].get(), &budget_, options);
  }

  std::atomic<bool> answers_{true};  // a next slot that has failed
  std::vector<char> state_ = std::vector<char>(kElements);
  Budget budget_{uint64_t{1} << 30};
  std::vector<std::unique_ptr<TcpTransport>> transports_;
};

// The parameter: whether both slots are on one node.
class BuddyTest : public SnapshotterTest, public ::testing::WithParamInterface<bool> {
 protected:
  // Returns the snapshotters of slots 0 and 1, whose world has begun.
  std::pair<std::unique_ptr<Snapshotter>, std::unique_ptr<Snapshotter>> Neighbours() {
    const std::string node = GetParam() ? NodeIdentity() : "another node";
    auto zero = Make(0, node);
    auto one = Make(1, node);
    const World world = Of(transports_[1]->address());
    StartWorld(zero.get(), world, kSecret, 0, Tensors(0));
    StartWorld(one.get(), world, kSecret, 1, Tensors(1));
    return {std::move(zero), std::move(one)};
  }
};

TEST_P(BuddyTest, NeighboursKeepTheLastVersions) {
  const auto [zero, one] = Neighbours();
  for (const uint64_t version : {3, 4, 5, 6}) {
    ASSERT_TRUE(zero->BeginVersion(version).ok());
    ASSERT_TRUE(one->BeginVersion(version).ok());
    ASSERT_TRUE(zero->WaitTaken(Now() + seconds(30)));
    ASSERT_TRUE(one->WaitTaken(Now() + seconds(30)));
  }
  zero->Freeze();
  one->Freeze();
  const std::vector<uint64_t> last = {4, 5, 6};
  EXPECT_EQ(zero->OwnVersions(), last);
  EXPECT_EQ(zero->BuddyVersions(), last);
  EXPECT_EQ(one->BuddyVersions(), last);
  const Box kept = one->kept().PieceBox(0);
  EXPECT_EQ(kept, ShardOf(kElements, 2, 0));
  EXPECT_TRUE(std::equal(state_.begin(), state_.begin() + static_cast<ptrdiff_t>(kept.end),
                         one->kept().Piece(6, 0)));
}

// A member that counts as lost and does not know it goes on for some updates. The others restore
// from its last complete copy, which the next slot may have mapped.
TEST_P(BuddyTest, LastCopyStaysWhenTheNextSlotHasStopped) {
  const auto [zero, one] = Neighbours();
  for (const uint64_t version : {4, 5, 6, 7, 8, 9}) {
    if (version == 6) {
      answers_ = false;
      one->Freeze();
    }
    ASSERT_TRUE(zero->BeginVersion(version).ok());
    ASSERT_TRUE(zero->WaitTaken(Now() + seconds(30)));
    ++state_[0];
  }
  const std::vector<uint64_t> kept = one->BuddyVersions();
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept.back(), 5u);
}

// Device work of an update that was not complete when the update returned, for example.
TEST_P(BuddyTest, StateThatChangedAfterItsUpdateIsCopiedAgain) {
  const auto [zero, one] = Neighbours();
  const auto await = [&first = zero, &second = one] {
    return first->WaitTaken(Now() + seconds(30)) && second->WaitTaken(Now() + seconds(30));
  };
  for (const uint64_t version : {4, 5}) {
    ASSERT_TRUE(zero->BeginVersion(version).ok());
    ASSERT_TRUE(one->BeginVersion(version).ok());
    ASSERT_TRUE(await());
  }
  const auto difference = [&](Snapshotter* snapshotter) {
    snapshotter->Compare(5);
    EXPECT_TRUE(await());
    return snapshotter->TakeDifference();
  };
  EXPECT_EQ(difference(zero.get()), std::nullopt);
  EXPECT_EQ(difference(one.get()), std::nullopt);
  ++state_[1];
  EXPECT_EQ(difference(zero.get()), "t");
  EXPECT_EQ(difference(one.get()), std::nullopt);
  zero->CopyAgain(5);
  ASSERT_TRUE(await());
  EXPECT_EQ(difference(zero.get()), std::nullopt);
  const std::vector<uint64_t> last = {5};
  EXPECT_EQ(zero->OwnVersions(), last);
  EXPECT_EQ(one->BuddyVersions(), last);
  EXPECT_EQ(one->kept().Piece(5, 0)[1], state_[1]);
}

// A recovery must not use copies that are known to be wrong.
TEST_P(BuddyTest, CopiesAreDroppedAlsoAfterALoss) {
  const auto [zero, one] = Neighbours();
  ASSERT_TRUE(zero->BeginVersion(4).ok());
  ASSERT_TRUE(zero->WaitTaken(Now() + seconds(30)));
  zero->Freeze();
  zero->CopyAgain(4);
  ASSERT_TRUE(zero->WaitTaken(Now() + seconds(30)));
  EXPECT_TRUE(zero->OwnVersions().empty());
}

TEST_P(BuddyTest, CopiesStreamedVersionOnlyWhenAsked) {
  const auto [zero, one] = Neighbours();
  for (const bool streamed : {false, true}) {
    ASSERT_TRUE(zero->BeginVersion(streamed ? 5 : 4, streamed).ok());
    ASSERT_TRUE(zero->WaitTaken(Now() + seconds(30)));
  }
  EXPECT_EQ(one->BuddyVersions(), std::vector<uint64_t>{4});
  zero->CopyRest(5);
  ASSERT_TRUE(zero->WaitTaken(Now() + seconds(30)));
  const std::vector<uint64_t> both = {4, 5};
  EXPECT_EQ(one->BuddyVersions(), both);
}

INSTANTIATE_TEST_SUITE_P(Nodes, BuddyTest, ::testing::Bool());

TEST_F(SnapshotterTest, CopiesVolatileStateOfStreamedVersionAtOnce) {
  const auto zero = Make(0, "");
  std::vector<PlacedTensor> tensors = Tensors(0);
  uint64_t cursor = 40;
  PlacedTensor t;
  t.shape = {"cursor", 1, sizeof cursor, Division::kReplicated, Change::kVolatile};
  t.part = {0, 1};
  t.place.data = reinterpret_cast<char*>(&cursor);
  tensors.push_back(t);
  StartWorld(zero.get(), {3, {{0, 0, ""}}}, kSecret, 0, tensors);
  ASSERT_TRUE(zero->BeginVersion(5, /*streamed=*/true).ok());
  cursor = 41;  // the step has begun when it turns out that nothing is streamed
  zero->CopyRest(5);
  ASSERT_TRUE(zero->WaitTaken(Now() + seconds(30)));
  EXPECT_EQ(zero->OwnVersions(), std::vector<uint64_t>{5});
  uint64_t copied = 0;
  std::memcpy(&copied, zero->own().Piece(5, 1), sizeof copied);
  EXPECT_EQ(copied, 40u);
}

// If nothing is sharded, a member may finish its update after it was told of a loss. Its constant
// tensors then have the new version, and its volatile tensors are also needed at that version.
TEST_F(SnapshotterTest, CopiesReplicatedVolatileStateAfterLoss) {
  const auto zero = Make(0, "");
  uint64_t cursor = 40;
  PlacedTensor t;
  t.shape = {"cursor", 1, sizeof cursor, Division::kReplicated, Change::kVolatile};
  t.part = {0, 1};
  t.place.data = reinterpret_cast<char*>(&cursor);
  StartWorld(zero.get(), Of(transports_[1]->address()), kSecret, 0, {t});
  ASSERT_TRUE(zero->BeginVersion(5).ok());
  zero->Freeze();
  cursor = 41;
  ASSERT_TRUE(zero->BeginVersion(6).ok());
  const std::vector<uint64_t> both = {5, 6};
  EXPECT_EQ(zero->OwnVersions(), both);
  const std::vector<uint32_t> tensors = {0};
  EXPECT_TRUE(zero->own().HasWhole(6, tensors));
  EXPECT_FALSE(zero->own().HasWhole(7, tensors));
}

TEST_F(SnapshotterTest, ListsNoVersionWithoutCopies) {
  const auto zero = Make(0, "");
  std::vector<PlacedTensor> tensors = Tensors(0);
  tensors[0].shape.division = Division::kReplicated;
  tensors[0].part = {0, kElements};
  StartWorld(zero.get(), Of(transports_[1]->address()), kSecret, 0, tensors);
  ASSERT_TRUE(zero->BeginVersion(5).ok());
  EXPECT_TRUE(zero->OwnVersions().empty());
  EXPECT_TRUE(zero->BuddyVersions().empty());
  EXPECT_TRUE(zero->own().HasWhole(5, {}));
}

// The next slot has abandoned a copy and started again: it has no memory mapped any more.
TEST_F(SnapshotterTest, SendsBytesAfterNextSlotDroppedTheMemory) {
  const auto zero = Make(0, NodeIdentity());
  const auto one = Make(1, NodeIdentity());
  const World world = Of(transports_[1]->address());
  StartWorld(zero.get(), world, kSecret, 0, Tensors(0));
  StartWorld(one.get(), world, kSecret, 1, Tensors(1));
  ASSERT_TRUE(zero->BeginVersion(4).ok());
  ASSERT_TRUE(zero->WaitTaken(Now() + seconds(30)));
  one->Freeze();
  StartWorld(one.get(), world, kSecret, 1, Tensors(1));
  for (const uint64_t version : {5, 6, 7}) {
    ASSERT_TRUE(zero->BeginVersion(version).ok());
    ASSERT_TRUE(zero->WaitTaken(Now() + seconds(30)));
  }
  const std::vector<uint64_t> both = {6, 7};
  EXPECT_EQ(one->BuddyVersions(), both);
}

// The next slot has detached, or was cut off: an update must not wait for it repeatedly.
TEST_F(SnapshotterTest, SilentNextSlotCostsOneWait) {
  UniqueFd silent;
  std::string address;
  ASSERT_TRUE(ListenTcp("127.0.0.1:0", &silent, &address).ok());
  std::atomic<bool> answers{false};
  Snapshotter::Options options;
  options.stall = milliseconds(50);
  options.answers = [&](const WorldMember&) { return answers.load(); };
  Snapshotter snapshotter(transports_[0].get(), &budget_, options);
  StartWorld(&snapshotter, Of(address), kSecret, 0, Tensors(0));
  uint64_t version = 0;
  const auto take = [&] {
    ASSERT_TRUE(snapshotter.BeginVersion(++version).ok());
    ASSERT_TRUE(snapshotter.WaitTaken(Now() + seconds(30)));
  };
  take();
  const uint64_t sent = snapshotter.bytes_sent();
  EXPECT_GT(sent, 0u);
  // The program does this when it has waited too long.
  snapshotter.Freeze();
  StartWorld(&snapshotter, Of(address), kSecret, 0, Tensors(0));
  for (int i = 0; i < 10; ++i) take();
  EXPECT_EQ(snapshotter.bytes_sent(), sent);
  answers = true;
  const Time deadline = Now() + seconds(30);
  while (snapshotter.bytes_sent() == sent && Now() < deadline) take();
  EXPECT_GT(snapshotter.bytes_sent(), sent);
}

// A stopped process: its system accepts connections, and nothing is ever answered.
TEST_F(SnapshotterTest, FreezeDoesNotWaitForSilentNextSlot) {
  for (int turn = 0; turn < 10; ++turn) {
    UniqueFd silent;
    std::string address;
    ASSERT_TRUE(ListenTcp("127.0.0.1:0", &silent, &address).ok());
    std::promise<void> asked;
    std::promise<void> answer;
    Snapshotter::Options options;
    options.stall = seconds(600);
    options.node_of = [&](const WorldMember&) {
      asked.set_value();
      answer.get_future().wait();
      return NodeIdentity();
    };
    Snapshotter snapshotter(transports_[0].get(), &budget_, options);
    StartWorld(&snapshotter, Of(address), kSecret, 0, Tensors(0));
    ASSERT_TRUE(snapshotter.BeginVersion(1).ok());
    asked.get_future().wait();
    // The stream is closed while the thread is about to send.
    std::thread freeze([&] { snapshotter.Freeze(); });
    answer.set_value();
    freeze.join();
  }
}

}  // namespace
}  // namespace rewire::state
