// New parts are allocated by the program, and a plan gets the addresses of old and new parts.
#include "reconfig/elastic/participant/new_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <numeric>
#include <string>
#include <vector>

#include "reconfig/base/status_macros.h"
#include "reconfig/state/plan/data_parallel.h"
#include "reconfig/state/stream/content.h"
#include "tests/unit/state/snapshot/start_world.h"

namespace rewire::elastic {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kElements = 12;

// A program whose memory the test looks at.
struct Program {
  std::list<std::vector<char>> memory;
  bool in_place = false;
};

void* AllocateForProgram(void* program, const char*, uint64_t bytes) {
  auto& memory = static_cast<Program*>(program)->memory;
  return memory.emplace_back(bytes, 'x').data();
}

int HasRoom(void* program, const char*, uint64_t, uint64_t) {
  return static_cast<Program*>(program)->in_place ? 1 : 0;
}

World Members(const std::vector<MemberId>& members) {
  World world{2, {}};
  for (const MemberId m : members) world.members.push_back({m, 1, ""});
  return world;
}

// A world of registered tensors.
struct Seated {
  Seated(const std::vector<state::TensorShape>& shapes, const World& members)
      : world(members),
        layout(*state::DataParallel(shapes, static_cast<uint32_t>(members.members.size()))) {
    seats.layout = &layout;
    for (const WorldMember& m : members.members) seats.seats.push_back({m.member, 0});
  }
  Seated(const Seated&) = delete;
  Seated& operator=(const Seated&) = delete;
  const World world;
  const state::ParallelLayout layout;
  state::SeatedLayout seats;
};

class NewPartsTest : public ::testing::Test {
 protected:
  NewPartsTest() {
    std::iota(bytes_.begin(), bytes_.end(), 0);
    // Slot 0 of two has elements 0 to 6.
    state::PlacedTensor sharded;
    sharded.shape = {"m", kElements, 1, state::Division::kSharded, state::Change::kConstant};
    sharded.part = {0, 6};
    sharded.place.data = bytes_.data();
    state::PlacedTensor replicated;
    replicated.shape = {"w", kElements, 1, state::Division::kReplicated, state::Change::kVolatile};
    replicated.part = {0, kElements};
    replicated.place.data = bytes_.data();
    state_.tensors = {sharded, replicated};
    state_.callbacks.arg = &program_;
    state_.callbacks.allocate = AllocateForProgram;
    state_.layout = LayoutOf(state_, 2).value();
  }
  // Allocates the parts of member 0 in the next world.
  absl::Status Allocate(const World& next) {
    return parts_.Allocate(state_,
                           *LayoutOf(state_, static_cast<uint32_t>(next.members.size())).value(),
                           next.SlotOf(0));
  }
  [[nodiscard]] std::vector<state::TensorShape> Shapes() const {
    return {state_.tensors[0].shape, state_.tensors[1].shape};
  }
  // Returns the copies of member 0 in a change.
  absl::StatusOr<ResolvedPlan> Resolve(const ProgramState& state, const World& before,
                                       const World& after) {
    const Seated from(Shapes(), before);
    const Seated to(Shapes(), after);
    REWIRE_ASSIGN_OR_RETURN(const state::MemberPlan plan,
                            state::PlanFor(0, state::Sources(from.seats), to.seats));
    return ResolvePlan(plan, 0, {from.seats, to.seats, to.world}, {state.tensors},
                       parts_.targets());
  }

  std::vector<char> bytes_ = std::vector<char>(kElements);
  Program program_;
  ProgramState state_;
  bool cancelled_ = false;
  NewParts parts_{[this] { return cancelled_; }};
};

TEST_F(NewPartsTest, CallsNoFunctionOfAnEndingProgram) {
  ProgramCalls calls;
  ASSERT_TRUE(calls.Close(Now()));
  state_.calls = &calls;
  const absl::Status refused = Allocate(Members({0, 1, 2}));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("exit handlers have begun"));
  EXPECT_TRUE(program_.memory.empty());
}

TEST_F(NewPartsTest, AllocatesOnlyPartsThatChange) {
  ASSERT_TRUE(Allocate(Members({0, 1, 2})).ok());
  ASSERT_EQ(parts_.parts().size(), 1u);
  EXPECT_EQ(parts_.parts()[0].tensor, 0u);
  EXPECT_EQ(parts_.parts()[0].box, (state::Box{0, 4}));
  EXPECT_EQ(parts_.parts()[0].place.data, program_.memory.front().data());
  ASSERT_TRUE(parts_.Touch(state_).ok());
  EXPECT_EQ(program_.memory.front(), std::vector<char>(4));  // its pages exist
  ASSERT_EQ(parts_.targets().size(), 2u);
  EXPECT_EQ(parts_.targets()[1].data, bytes_.data());
}

TEST_F(NewPartsTest, LeavingMemberAllocatesNothing) {
  ASSERT_TRUE(Allocate(Members({1})).ok());
  EXPECT_TRUE(parts_.parts().empty());
  EXPECT_EQ(parts_.targets()[0].data, bytes_.data());
}

TEST_F(NewPartsTest, PartStaysInPlaceWhenTheProgramHasRoom) {
  program_.in_place = true;
  state_.callbacks.in_place = HasRoom;
  bytes_.resize(kElements);
  state_.tensors[0].place.data = bytes_.data();
  ASSERT_TRUE(Allocate(Members({0})).ok());
  ASSERT_EQ(parts_.parts().size(), 1u);
  EXPECT_EQ(parts_.parts()[0].place.data, bytes_.data());
  ASSERT_TRUE(parts_.Touch(state_).ok());
  EXPECT_EQ(bytes_[5], 5);   // the old part is kept
  EXPECT_EQ(bytes_[11], 0);  // the new elements were touched
}

TEST_F(NewPartsTest, NamesTheTensorWithoutMemory) {
  state_.callbacks.allocate = [](void*, const char*, uint64_t) -> void* { return nullptr; };
  const absl::Status missing = Allocate(Members({0}));
  EXPECT_EQ(missing.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("tensor m"));
}

TEST_F(NewPartsTest, EndsWhenTheTransitionIsAborted) {
  cancelled_ = true;
  EXPECT_EQ(Allocate(Members({0})).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(program_.memory.empty());
}

TEST_F(NewPartsTest, PlanHasTheAddressesOfOldAndNewParts) {
  const World to = Members({0, 1, 2});
  ASSERT_TRUE(Allocate(to).ok());
  const auto resolved = Resolve(state_, Members({0, 1}), to);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_TRUE(resolved->incoming.empty());
  bool local = false;
  bool sent = false;
  for (const state::Outgoing& out : resolved->outgoing) {
    if (out.tensor != 0) continue;
    if (out.local) {
      local = true;
      EXPECT_EQ(out.source.place().data, bytes_.data());
      EXPECT_EQ(out.place.place().data, program_.memory.front().data());
      EXPECT_EQ(out.end, 4u);
    } else {
      sent = true;
      EXPECT_EQ(out.target.member, 1u);  // elements 4 and 5
      EXPECT_EQ(out.source.place().data, bytes_.data() + 4);
      EXPECT_EQ(out.begin, 0u);
      EXPECT_EQ(out.end, 2u);
    }
  }
  EXPECT_TRUE(local);
  EXPECT_TRUE(sent);
}

TEST_F(NewPartsTest, ChangingStateArrivesLate) {
  const World to = Members({1, 0});
  ProgramState joiner = state_;
  joiner.tensors[0].part = {6, 12};
  joiner.slot = 1;
  ASSERT_TRUE(parts_.Allocate(joiner, *joiner.layout, to.SlotOf(0)).ok());
  EXPECT_TRUE(parts_.parts().empty()) << "it has registered its future part";
  const auto resolved = Resolve(joiner, Members({1}), to);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_EQ(resolved->incoming.size(), 2u);
  for (const state::Incoming& in : resolved->incoming) {
    EXPECT_EQ(in.source, 1u);
    EXPECT_EQ(in.late, in.tensor == 1);
  }
}

// REWIRE_BUDDY=0: divided tensors have no copies, and others have.
TEST_F(NewPartsTest, TakesNoCopyThatWasNotMade) {
  state_.tensors[0].shape.elements = 1;  // slot 1 has no element
  state_.tensors[0].shape.change = state::Change::kVolatile;
  state_.tensors[0].part = {0, 1};
  state_.layout = LayoutOf(state_, 2).value();
  const World before = Members({0, 1});
  state::Budget budget(1 << 20);
  state::Snapshotter::Options options;
  options.buddy = false;
  state::Snapshotter snapshots(nullptr, &budget, options);
  state::StartWorld(&snapshots, before, {{7}}, 0, state_.tensors);
  ASSERT_TRUE(snapshots.BeginVersion(7).ok());
  ASSERT_NE(snapshots.own().Piece(7, 0), nullptr);
  const Seated from(Shapes(), before);
  const Seated to(Shapes(), Members({0}));
  const auto plan = state::PlanFor(0, state::Sources(from.seats, {{0}, {0}, {}}), to.seats);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(Allocate(to.world).ok());
  const auto resolved = ResolvePlan(*plan, 0, {from.seats, to.seats, to.world},
                                    {state_.tensors, &snapshots, 7}, parts_.targets());
  EXPECT_EQ(resolved.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(resolved.status().message()), HasSubstr("no snapshot of version 7"));
}

TEST(CheckKeptTest, RefusesCopiesThatChangedWhileTheyWereRead) {
  const std::vector<state::Box> boxes = {{0, 4}, {0, 4}};
  state::SnapshotSlots kept;
  kept.Reset({boxes, boxes, {1, 1}});
  for (const uint32_t tensor : {0, 1}) {
    ASSERT_TRUE(kept.Put(7, tensor, 0, std::string("abcd"), state::HashContent("abcd", 4, 0)).ok());
  }
  state::MemberPlan plan;
  plan.moves = {{{0, {}, 1, state::Origin::kBuddySnapshot, 2, false}, 0},
                {{1, {}, 1, state::Origin::kOwnSnapshot, 2, false}, 0},
                {{0, {}, 1, state::Origin::kBuddySnapshot, 1, false}, 0}};
  EXPECT_TRUE(CheckKept(plan, 1, kept, 7).ok());
  const_cast<char*>(kept.Piece(7, 1))[0] ^= 1;
  EXPECT_TRUE(CheckKept(plan, 1, kept, 7).ok()) << "tensor 1 was not read";
  const_cast<char*>(kept.Piece(7, 0))[3] ^= 1;
  EXPECT_THAT(CheckKept(plan, 1, kept, 7).ToString(), HasSubstr("has changed its copies"));
  EXPECT_TRUE(CheckKept(plan, 2, kept, 7).ok()) << "another member read them";
}

}  // namespace
}  // namespace rewire::elastic
