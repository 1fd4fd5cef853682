// Plans of changes and restores for tensors that were registered one by one: random worlds, and
// single cases.
#include "reconfig/state/plan/member_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "reconfig/elastic/leader/restore_choice.h"
#include "reconfig/state/plan/data_parallel.h"
#include "reconfig/state/plan/needs.h"
#include "reconfig/state/plan/snapshot_part.h"
#include "tests/unit/state/plan/checked_moves.h"

namespace rewire::state {
namespace {

// The elements that a slot has, as the C interface says it.
Box PartOf(const TensorShape& tensor, uint32_t slots, uint32_t slot) {
  if (tensor.division == Division::kReplicated) return {0, tensor.elements};
  return ShardOf(tensor.elements, slots, slot);
}

using ::testing::HasSubstr;
using Shapes = std::vector<TensorShape>;

World Members(const std::vector<MemberId>& ids, Epoch epoch = 1) {
  World world;
  world.epoch = epoch;
  for (MemberId id : ids) world.members.push_back({id, id + 100, "127.0.0.1:1"});
  return world;
}

// A world of registered tensors.
struct Job {
  Job(const Shapes& tensors, const std::vector<MemberId>& ids)
      : layout(*DataParallel(tensors, static_cast<uint32_t>(ids.size()))) {
    seated.layout = &layout;
    for (const MemberId id : ids) seated.seats.push_back({id, 0});
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  const ParallelLayout layout;
  SeatedLayout seated;
};

std::vector<MemberId> RandomMembers(MemberId first) {
  const auto n = *rc::gen::inRange<MemberId>(1, 9);
  std::vector<MemberId> ids;
  for (MemberId i = 0; i < n; ++i) ids.push_back(first + i);
  return ids;
}

TensorShape RandomTensor(const std::string& name) {
  TensorShape t;
  t.name = name;
  t.elements = *rc::gen::inRange<uint64_t>(1, 5'000'000);
  t.element_bytes = *rc::gen::element(1u, 2u, 4u, 8u);
  t.division = *rc::gen::element(Division::kReplicated, Division::kSharded);
  t.change = *rc::gen::element(Change::kConstant, Change::kVolatile);
  return t;
}

// Returns the bytes that members lack of their parts: no plan can move less.
uint64_t LowerBound(const Shapes& tensors, const std::vector<MemberId>& from,
                    const std::vector<MemberId>& to) {
  uint64_t bytes = 0;
  for (const TensorShape& t : tensors) {
    for (uint32_t slot = 0; slot < to.size(); ++slot) {
      const Box part = PartOf(t, static_cast<uint32_t>(to.size()), slot);
      uint64_t has = 0;
      const auto before = std::find(from.begin(), from.end(), to[slot]);
      if (before != from.end()) {
        const Box old = PartOf(t, static_cast<uint32_t>(from.size()),
                               static_cast<uint32_t>(before - from.begin()));
        has = Box{std::max(part.begin, old.begin), std::min(part.end, old.end)}.size();
      }
      bytes += (part.size() - has) * t.element_bytes;
    }
  }
  return bytes;
}

TEST(MemberPlanTest, OnlyMissingElementsMove) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<MemberId> before = RandomMembers(0);
    const std::vector<MemberId> after = RandomMembers(*rc::gen::inRange<MemberId>(0, 5));
    const Shapes tensors = {RandomTensor("a"), RandomTensor("b")};
    const Job from(tensors, before);
    const Job to(tensors, after);
    uint64_t moved = 0;
    uint64_t hash = 0;
    for (const MemberId member : after) {
      const auto plan = PlanFor(member, Sources(from.seated), to.seated);
      RC_ASSERT(plan.ok());  // each part comes exactly once
      RC_ASSERT(hash == 0 || hash == plan->hash);
      hash = plan->hash;
      for (const auto& [move, begin] : plan->moves) {
        if (move.target != member || move.source == member) continue;
        moved += move.chunk.elements() * tensors[move.tensor].element_bytes;
      }
    }
    RC_ASSERT(moved == LowerBound(tensors, before, after));
  }));
}

// Both ends of a move name its bytes equally, and no two moves to a member share a name.
TEST(MemberPlanTest, BothEndsNameTheSameBytes) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const AnyChange change(seed);
    std::map<MemberId, MemberPlan> plans;
    for (const SeatedLayout* world : {&change.from, &change.to}) {
      for (const Seat& seat : world->seats) {
        plans[seat.member] = *PlanFor(seat.member, Sources(change.from), change.to);
      }
    }
    for (const auto& [member, plan] : plans) {
      EXPECT_EQ(plan.hash, plans.begin()->second.hash);
      std::map<std::pair<uint32_t, MemberId>, uint64_t> next;
      for (const MemberMove& m : plan.moves) {
        const auto& others = plans[m.move.source].moves;
        const auto same = std::find_if(others.begin(), others.end(), [&](const MemberMove& other) {
          return other.move == m.move && other.begin == m.begin;
        });
        EXPECT_NE(same, others.end()) << seed;
        if (m.move.target != member || m.move.source == member) continue;
        uint64_t& least = next[{m.move.tensor, member}];
        EXPECT_GE(m.begin, least);
        const LogicalTensor& t = change.to.layout->tensors()[m.move.tensor];
        least = m.begin + m.move.chunk.elements() * t.element_bytes;
      }
    }
  }
}

// After a loss under any layout: each element comes from a member that has it in place at the
// restored version, or from a copy that has it.
TEST(MemberPlanTest, AnyLayoutIsRestoredFromWhatIsLeft) {
  int restored = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const AnyChange change(seed);
    AnyLayout any(seed + 1000);
    RestoreSources survivors;
    for (const Seat& seat : change.from.seats) {
      if (any.In(0, 5) == 0) continue;  // lost
      if (any.In(0, 2) > 0) survivors.live.push_back(seat.member);
      if (any.In(0, 2) > 0) survivors.own.push_back(seat.member);
      if (any.In(0, 2) > 0) survivors.buddy.push_back(seat.member);
    }
    const Sources sources(change.from, survivors);
    std::vector<Move> moves;
    const absl::Status planned =
        PlanMoves(sources, change.to, [&](const Move& move) { moves.push_back(move); });
    if (!planned.ok()) {
      EXPECT_THAT(planned.message(), HasSubstr("no longer exists on any member"));
      continue;
    }
    ++restored;
    std::map<MemberId, uint32_t> slot_of;
    for (uint32_t slot = 0; slot < change.from.seats.size(); ++slot) {
      slot_of[change.from.seats[slot].member] = slot;
    }
    const auto slots = static_cast<uint32_t>(change.from.seats.size());
    for (const Move& move : moves) {
      if (move.relayed) continue;
      const ParallelLayout& layout = *change.from.layout;
      const uint32_t own = slot_of.at(move.source);
      std::vector<Piece> pieces;
      switch (move.origin) {
        case Origin::kLive:
          EXPECT_TRUE(std::count(survivors.live.begin(), survivors.live.end(), move.source));
          EXPECT_EQ(layout.tensors()[move.tensor].change, Change::kConstant);
          pieces = layout.PiecesOf(move.tensor, own);
          break;
        case Origin::kOwnSnapshot:
          EXPECT_TRUE(std::count(survivors.own.begin(), survivors.own.end(), move.source) ||
                      std::count(survivors.live.begin(), survivors.live.end(), move.source));
          pieces = layout.PiecesOf(move.tensor, own, SnapshotPart(layout, move.tensor, own));
          break;
        case Origin::kBuddySnapshot: {
          EXPECT_TRUE(std::count(survivors.buddy.begin(), survivors.buddy.end(), move.source));
          const uint32_t before = (own + slots - 1) % slots;
          pieces = layout.PiecesOf(move.tensor, before, SnapshotPart(layout, move.tensor, before));
          break;
        }
      }
      EXPECT_TRUE(std::any_of(
          pieces.begin(), pieces.end(),
          [&](const Piece& piece) { return Intersection(piece.chunk, move.chunk) == move.chunk; }))
          << "seed " << seed << " tensor " << move.tensor << " " << Text(move.chunk);
    }
  }
  EXPECT_GT(restored, 100);
}

TEST(MemberPlanTest, EveryPartIsRestoredAfterALoss) {
  EXPECT_TRUE(rc::check([] {
    const auto n = *rc::gen::inRange<MemberId>(2, 9);
    std::vector<MemberId> ids;
    for (MemberId i = 0; i < n; ++i) ids.push_back(i);
    const Shapes tensors = {RandomTensor("a"), RandomTensor("b")};
    const Job from(tensors, ids);
    ids.erase(ids.begin() + *rc::gen::inRange<MemberId>(0, n));
    const Job to(tensors, ids);
    RestoreSources sources;
    for (MemberId m : ids) {
      if (*rc::gen::arbitrary<bool>()) sources.live.push_back(m);
    }
    sources.own = sources.buddy = ids;
    // Without copies at least one member must have the version in place.
    if (!CopiesPieces(from.layout) && sources.live.empty()) sources.live.push_back(ids.front());
    for (const MemberId m : ids) {
      RC_ASSERT(PlanFor(m, Sources(from.seated, sources), to.seated).ok());
    }
  }));
}

// The leader's choice from the layout agrees with a plan from the tensors, in both directions.
TEST(MemberPlanTest, EveryChoiceOfTheLeaderIsRestored) {
  EXPECT_TRUE(rc::check([] {
    const auto n = *rc::gen::inRange<MemberId>(1, 6);
    std::vector<MemberId> ids;
    std::vector<MemberId> alive;
    for (MemberId i = 0; i < n; ++i) {
      ids.push_back(i);
      if (*rc::gen::arbitrary<bool>()) alive.push_back(i);
    }
    if (alive.empty()) alive.push_back(0);
    const Shapes tensors = {RandomTensor("a"), RandomTensor("b"), RandomTensor("c")};
    const Job from(tensors, ids);
    const Job to(tensors, alive);
    std::map<MemberId, elastic::AtBoundary> reports;
    RestoreSources sources;
    for (MemberId m : alive) {
      elastic::AtBoundary& r = reports[m];
      r.live_version = 7;
      r.live_whole = *rc::gen::arbitrary<bool>();
      if (r.live_whole) sources.live.push_back(m);
      if (*rc::gen::arbitrary<bool>()) r.own_snapshots = {7};
      if (!r.own_snapshots.empty()) sources.own.push_back(m);
      if (*rc::gen::arbitrary<bool>()) r.buddy_snapshots = {7};
      if (!r.buddy_snapshots.empty()) sources.buddy.push_back(m);
      r.needs = NeedsOf(from.layout);
    }
    const auto choice = elastic::ChooseVersion(Members(ids), reports);
    const auto plan = PlanFor(alive.front(), Sources(from.seated, sources), to.seated);
    const bool reported = !sources.live.empty() || !sources.own.empty() || !sources.buddy.empty();
    RC_ASSERT(choice.ok() == (plan.ok() && reported));
    if (choice.ok()) RC_ASSERT(choice->sources == sources);
  }));
}

TEST(NeedsTest, UniqueStateNeedsItsOwnerOrItsCopy) {
  const TensorShape weights{"weights", 100, 2};
  const TensorShape moments{"moments", 3, 4, Division::kSharded};
  const TensorShape mean{"mean", 8, 8, Division::kReplicated, Change::kVolatile};
  const TensorShape gradient{"gradient", 100, 4, Division::kSharded, Change::kTransient};
  const auto needs = [](const Shapes& tensors, uint32_t slots) {
    return NeedsOf(*DataParallel(tensors, slots));
  };
  const std::vector<uint32_t> all = {0, 1, 2, 3};
  EXPECT_EQ(needs({weights, gradient}, 2), (StateNeeds{{{0, 1}, {}, {}}}));
  EXPECT_EQ(needs({mean}, 2), (StateNeeds{{{0, 1}, {0, 1}, {}}}));
  EXPECT_EQ(
      needs({weights, moments, mean}, 4),
      (StateNeeds{{{0}, {}, {0}}, {all, {}, all}, {all, all, {}}, {{1}, {}, {1}}, {{2}, {}, {2}}}));
}

// Two stages may have a tensor in different shards. The leader does not know then that one has what
// the other has lost.
bool HasElementsInTwoClasses(const ParallelLayout& layout) {
  for (size_t tensor = 0; tensor < layout.tensors().size(); ++tensor) {
    uint64_t elements = 0;
    for (const std::vector<Chunk>& chunks : ChunksByClass(layout, tensor)) {
      for (const Chunk& chunk : chunks) elements += chunk.elements();
    }
    if (elements > Chunk::Whole(layout.tensors()[tensor].shape).elements()) return true;
  }
  return false;
}

// The leader's choice agrees with a plan under any layout, in both directions.
TEST(NeedsTest, EveryChoiceUnderAnyLayoutIsRestored) {
  int chosen = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    const AnyChange change(seed);
    AnyLayout any(seed + 5000);
    const StateNeeds needs = NeedsOf(*change.from.layout);
    World from;
    std::map<MemberId, elastic::AtBoundary> reports;
    RestoreSources survivors;
    for (const Seat& seat : change.from.seats) {
      from.members.push_back({seat.member, 1, ""});
      if (any.In(0, 5) == 0) continue;  // lost
      elastic::AtBoundary& r = reports[seat.member];
      r.live_version = 7;
      r.live_whole = any.In(0, 2) > 0;
      if (any.In(0, 2) > 0) r.own_snapshots = {7};
      if (any.In(0, 2) > 0) r.buddy_snapshots = {7};
      r.needs = needs;
      if (r.live_whole) survivors.live.push_back(seat.member);
      if (!r.own_snapshots.empty()) survivors.own.push_back(seat.member);
      if (!r.buddy_snapshots.empty()) survivors.buddy.push_back(seat.member);
    }
    const bool reported =
        !survivors.live.empty() || !survivors.own.empty() || !survivors.buddy.empty();
    const bool found = !reports.empty() && elastic::ChooseVersion(from, reports).ok();
    const absl::Status planned =
        PlanMoves(Sources(change.from, survivors), change.to, [](const Move&) {});
    const bool possible = planned.ok() && reported;
    EXPECT_TRUE(found == possible || (possible && HasElementsInTwoClasses(*change.from.layout)))
        << "seed " << seed << " " << planned;
    chosen += found ? 1 : 0;
  }
  EXPECT_GT(chosen, 100);
}

TEST(DataParallelTest, ShardsAreThoseOfTheCInterface) {
  for (const uint64_t elements : {1, 7, 100, 4097}) {
    const Shapes tensors = {{"t", elements, 4, Division::kSharded}};
    for (uint32_t slots = 1; slots <= 9; ++slots) {
      const ParallelLayout layout = *DataParallel(tensors, slots);
      for (uint32_t slot = 0; slot < slots; ++slot) {
        const Box part = PartOf(tensors[0], slots, slot);
        EXPECT_EQ(layout.ElementsOf(0, slot), part.size());
        const std::vector<Piece> pieces = layout.PiecesOf(0, slot);
        ASSERT_EQ(pieces.size(), part.empty() ? 0u : 1u);
        if (part.empty()) continue;
        EXPECT_EQ(pieces[0].chunk.begin[0], part.begin);
        EXPECT_EQ(pieces[0].chunk.end[0], part.end);
      }
    }
  }
}

TEST(MemberPlanTest, AMemberInPlaceIsTheSourceWithoutCopies) {
  const Shapes tensors = {{"weights", 100, 4}};
  const Job from(tensors, {0, 1, 2});
  const Job to(tensors, {1, 2});
  const auto plan = PlanFor(1, Sources(from.seated, {{2}, {1, 2}, {1, 2}}), to.seated);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_FALSE(plan->moves.empty());
  for (const MemberMove& m : plan->moves) EXPECT_EQ(m.move.source, 2u);
  EXPECT_FALSE(PlanFor(1, Sources(from.seated, {{}, {1, 2}, {1, 2}}), to.seated).ok());
}

TEST(MemberPlanTest, AShardThatIsLostWithItsNeighbourIsNamed) {
  const Shapes tensors = {{"moments", 100, 4, Division::kSharded}};
  const Job from(tensors, {0, 1, 2, 3});
  const Job to(tensors, {0, 3});
  const auto plan = PlanFor(0, Sources(from.seated, {{0, 3}, {0, 3}, {0, 3}}), to.seated);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("tensor moments [25"));
}

TEST(MemberPlanTest, TheLoadIsSpreadOverSenders) {
  const Shapes tensors = {{"weights", 400 << 20, 1}};
  const Job from(tensors, {0, 1, 2, 3});
  const Job to(tensors, {0, 1, 2, 3, 4});
  const auto plan = PlanFor(4, Sources(from.seated), to.seated);
  ASSERT_TRUE(plan.ok());
  std::map<MemberId, uint64_t> load;
  for (const auto& [move, begin] : plan->moves) load[move.source] += move.chunk.elements();
  ASSERT_EQ(load.size(), 4u);
  for (const auto& [member, bytes] : load) EXPECT_NEAR(bytes, 100 << 20, 8 << 20) << member;
}

}  // namespace
}  // namespace rewire::state
