// Copies between two neighbours over their transports, on one node and on two.
#include "reconfig/state/snapshot/buddy_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "reconfig/state/stream/content.h"
#include "reconfig/state/stream/peer_offer.h"
#include "reconfig/state/stream/tcp_transport.h"

namespace rewire::state {
namespace {

constexpr uint64_t kBytes = 3 << 20;
constexpr StreamKey kKey{Purpose::kSnapshot, 3, {{7}}};

// The parameter: the neighbours are on one node.
class BuddyLinkTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::iota(state_.begin(), state_.end(), 0);
    for (MemberId m : {0, 1}) {
      TcpOptions options;
      options.member = m;
      auto transport = TcpTransport::Start(options);
      ASSERT_TRUE(transport.ok());
      transports_.push_back(std::move(*transport));
      BuddyLink::Options link;
      link.stall = seconds(30);
      link.node_of = [](const WorldMember&) {
        return GetParam() ? NodeIdentity() : "another node";
      };
      links_.push_back(std::make_unique<BuddyLink>(transports_[m].get(), &budget_, link));
    }
    own_.Reset(Shape({0, kBytes}));
    links_[0]->Start(Shape({}), NeighboursOf(0, {0, kBytes}));
    links_[1]->Start(Shape({0, kBytes}), NeighboursOf(1, {}));
  }
  void TearDown() override {
    for (const auto& link : links_) link->Stop();
  }
  static SnapshotSlots::Shape Shape(const Box& box) { return {{box}, {box}, {1}}; }
  // The neighbours of a slot of two, which sends `sent` of the only tensor.
  BuddyLink::Neighbours NeighboursOf(MemberId m, const Box& sent) {
    const WorldMember other{1 - m, 0, transports_[1 - m]->address()};
    return {kKey, other, other, {sent}, {1}};
  }
  // Copies this version of the state into the own snapshots.
  void CopyState(uint64_t version) {
    const uint64_t content = HashContent(state_.data(), state_.size(), 0);
    ASSERT_TRUE(own_.Put(version, 0, 0, state_, content).ok());
  }

  std::vector<char> state_ = std::vector<char>(kBytes);
  Budget budget_{uint64_t{1} << 30};
  SnapshotSlots own_{/*shared=*/true};
  std::vector<std::unique_ptr<TcpTransport>> transports_;
  std::vector<std::unique_ptr<BuddyLink>> links_;
};

TEST_P(BuddyLinkTest, NextSlotKeepsSentVersion) {
  CopyState(4);
  ASSERT_TRUE(links_[0]->Send(4, &own_).ok());
  EXPECT_GT(links_[0]->bytes_sent(), 0u);
  const SnapshotSlots& kept = links_[1]->kept();
  EXPECT_EQ(kept.WholeVersions(), std::vector<uint64_t>{4});
  EXPECT_TRUE(std::equal(state_.begin(), state_.end(), kept.Piece(4, 0)));
}

TEST_P(BuddyLinkTest, NextSlotForgetsBeforeTheNextCopy) {
  for (const uint64_t version : {4, 5}) {
    CopyState(version);
    ASSERT_TRUE(links_[0]->Send(version, &own_).ok());
  }
  own_.Forget(5, std::vector<uint32_t>{0});
  links_[0]->Forget(5);
  ++state_[0];
  CopyState(5);
  ASSERT_TRUE(links_[0]->Send(5, &own_).ok());
  const SnapshotSlots& kept = links_[1]->kept();
  EXPECT_EQ(kept.WholeVersions(), std::vector<uint64_t>{5});
  EXPECT_TRUE(std::equal(state_.begin(), state_.end(), kept.Piece(5, 0)));
}

TEST_P(BuddyLinkTest, SendsNoIncompleteCopy) {
  EXPECT_TRUE(absl::IsFailedPrecondition(links_[0]->Send(4, &own_)));
  EXPECT_TRUE(links_[1]->kept().WholeVersions().empty());
}

TEST_P(BuddyLinkTest, TakesNothingAfterStop) {
  links_[1]->Stop();
  FragmentHeader header;
  header.version = 4;
  EXPECT_TRUE(absl::IsFailedPrecondition(links_[1]->Take(0, header, state_)));
  EXPECT_TRUE(links_[1]->kept().WholeVersions().empty());
}

TEST_P(BuddyLinkTest, SendsNothingWithoutNeighbours) {
  links_[0]->Stop();
  links_[0]->Start(Shape({}), std::nullopt);
  CopyState(4);
  EXPECT_TRUE(links_[0]->Send(4, &own_).ok());
  EXPECT_EQ(links_[0]->bytes_sent(), 0u);
}

TEST_P(BuddyLinkTest, RefusesMalformedNotes) {
  FragmentHeader header;
  for (const NoteKind kind : {NoteKind::kMemory, NoteKind::kParts, NoteKind::kForget}) {
    header.tensor = static_cast<uint32_t>(kind);
    EXPECT_TRUE(absl::IsInvalidArgument(links_[1]->Take(0, header, std::string("note"))));
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, BuddyLinkTest, ::testing::Bool());

}  // namespace
}  // namespace rewire::state
