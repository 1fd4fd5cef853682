// Plans of changes and restores, for random worlds and tensors and for single cases.
#include "reconfig/state/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "reconfig/elastic/leader/restore_choice.h"

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

World Members(const std::vector<MemberId>& ids, Epoch epoch = 1) {
  World world;
  world.epoch = epoch;
  for (MemberId id : ids) world.members.push_back({id, id + 100, "127.0.0.1:1"});
  return world;
}

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
uint64_t LowerBound(const std::vector<TensorShape>& tensors, const World& from, const World& to) {
  uint64_t bytes = 0;
  for (const TensorShape& t : tensors) {
    for (uint32_t slot = 0; slot < to.members.size(); ++slot) {
      const Box part = PartOf(t, static_cast<uint32_t>(to.members.size()), slot);
      uint64_t has = 0;
      if (const auto before = from.SlotOf(to.members[slot].member)) {
        const Box old = PartOf(t, static_cast<uint32_t>(from.members.size()), *before);
        has = Box{std::max(part.begin, old.begin), std::min(part.end, old.end)}.size();
      }
      bytes += (part.size() - has) * t.element_bytes;
    }
  }
  return bytes;
}

TEST(PlanTest, MovesOnlyMissingElements) {
  EXPECT_TRUE(rc::check([] {
    const World from = Members(RandomMembers(0));
    const World to = Members(RandomMembers(*rc::gen::inRange<MemberId>(0, 5)), 2);
    const std::vector<TensorShape> tensors = {RandomTensor("a"), RandomTensor("b")};
    const auto plan = PlanChange(tensors, from, to);
    RC_ASSERT(plan.ok());  // CheckPlan has passed
    RC_ASSERT(plan->BytesOnWire(tensors) == LowerBound(tensors, from, to));
    const auto again = PlanChange(tensors, from, to);
    RC_ASSERT(PlanHash(tensors, from, to, *plan) == PlanHash(tensors, from, to, *again));
  }));
}

TEST(PlanTest, RestoresEveryPartAfterLoss) {
  EXPECT_TRUE(rc::check([] {
    const auto n = *rc::gen::inRange<MemberId>(2, 9);
    std::vector<MemberId> ids;
    for (MemberId i = 0; i < n; ++i) ids.push_back(i);
    const World from = Members(ids);
    ids.erase(ids.begin() + *rc::gen::inRange<MemberId>(0, n));
    const World to = Members(ids, 2);
    RestoreSources sources;
    for (MemberId m : ids) {
      if (*rc::gen::arbitrary<bool>()) sources.live.push_back(m);
    }
    sources.own = sources.buddy = ids;
    const std::vector<TensorShape> tensors = {RandomTensor("a"), RandomTensor("b")};
    // Without copies at least one member must have the version in place.
    if (!CopiesPieces(tensors) && sources.live.empty()) sources.live.push_back(ids.front());
    RC_ASSERT(PlanRestore(tensors, from, to, sources).ok());
  }));
}

// The leader's choice from the layout agrees with a plan from the tensors, in both directions.
TEST(PlanTest, RestoresEveryChoiceOfLeader) {
  EXPECT_TRUE(rc::check([] {
    const auto n = *rc::gen::inRange<MemberId>(1, 6);
    std::vector<MemberId> ids;
    std::vector<MemberId> alive;
    for (MemberId i = 0; i < n; ++i) {
      ids.push_back(i);
      if (*rc::gen::arbitrary<bool>()) alive.push_back(i);
    }
    if (alive.empty()) alive.push_back(0);
    const World from = Members(ids);
    const std::vector<TensorShape> tensors = {RandomTensor("a"), RandomTensor("b"),
                                              RandomTensor("c")};
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
      r.layout = LayoutOf(tensors, n);
    }
    const auto choice = elastic::ChooseVersion(from, reports);
    const auto plan = PlanRestore(tensors, from, Members(alive, 2), sources);
    const bool reported = !sources.live.empty() || !sources.own.empty() || !sources.buddy.empty();
    RC_ASSERT(choice.ok() == (plan.ok() && reported));
    if (choice.ok()) RC_ASSERT(choice->sources == sources);
  }));
}

TEST(PlanTest, LayoutSeparatesUniqueFromReplicatedState) {
  const TensorShape weights{"weights", 100, 2};
  const TensorShape moments{"moments", 3, 4, Division::kSharded};
  const TensorShape mean{"mean", 8, 8, Division::kReplicated, Change::kVolatile};
  const TensorShape gradient{"gradient", 100, 4, Division::kSharded, Change::kTransient};
  using Shapes = std::vector<TensorShape>;
  EXPECT_EQ(LayoutOf(Shapes{weights, gradient}, 2), (StateLayout{true, false, {}, {}}));
  EXPECT_EQ(LayoutOf(Shapes{mean}, 2), (StateLayout{false, true, {}, {}}));
  EXPECT_EQ(LayoutOf(Shapes{weights, moments, mean}, 4),
            (StateLayout{true, true, {0, 1, 2}, {0, 1, 2, 3}}));
}

TEST(PlanTest, LiveMemberIsSourceWithoutCopies) {
  const std::vector<TensorShape> tensors = {{"weights", 100, 4}};
  const auto plan =
      PlanRestore(tensors, Members({0, 1, 2}), Members({1, 2}, 2), {{2}, {1, 2}, {1, 2}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const BoxCopy& c : plan->copies) EXPECT_EQ(c.source, 2u);
  EXPECT_FALSE(
      PlanRestore(tensors, Members({0, 1, 2}), Members({1, 2}, 2), {{}, {1, 2}, {1, 2}}).ok());
}

TEST(PlanTest, NamesShardLostWithTwoNeighbours) {
  const std::vector<TensorShape> tensors = {{"moments", 100, 4, Division::kSharded}};
  const auto plan =
      PlanRestore(tensors, Members({0, 1, 2, 3}), Members({0, 3}, 2), {{0, 3}, {0, 3}, {0, 3}});
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("tensor moments elements [25"));
}

TEST(PlanTest, SpreadsLoadOverSenders) {
  const std::vector<TensorShape> tensors = {{"weights", 400 << 20, 1}};
  const auto plan = PlanChange(tensors, Members({0, 1, 2, 3}), Members({0, 1, 2, 3, 4}, 2));
  ASSERT_TRUE(plan.ok());
  std::map<MemberId, uint64_t> load;
  for (const BoxCopy& c : plan->copies) {
    if (!c.local()) load[c.source] += c.box.size();
  }
  ASSERT_EQ(load.size(), 4u);
  for (const auto& [member, bytes] : load) EXPECT_NEAR(bytes, 100 << 20, 8 << 20) << member;
}

TEST(PlanTest, RejectsWrongPlan) {
  const std::vector<TensorShape> tensors = {{"t", 10, 4}};
  const std::vector<Holding> holdings = {{0, 0, {0, 10}, Origin::kLive}};
  const std::vector<Need> needs = {{1, 0, {0, 10}}};
  const auto plan = AssignSources(tensors, holdings, needs);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(CheckPlan(tensors, holdings, needs, *plan).ok());
  Plan shorter = *plan;
  shorter.copies[0].box.end = 9;
  EXPECT_FALSE(CheckPlan(tensors, holdings, needs, shorter).ok());
  Plan other_source = *plan;
  other_source.copies[0].source = 2;
  EXPECT_FALSE(CheckPlan(tensors, holdings, needs, other_source).ok());
  Plan twice = *plan;
  twice.copies.push_back(twice.copies[0]);
  EXPECT_FALSE(CheckPlan(tensors, holdings, needs, twice).ok());
  EXPECT_FALSE(CheckPlan(tensors, holdings, needs, Plan{}).ok());
}

}  // namespace
}  // namespace rewire::state
