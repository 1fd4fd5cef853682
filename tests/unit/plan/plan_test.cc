#include "reconfig/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

namespace rewire {
namespace {

using ::testing::HasSubstr;

World Members(std::vector<MemberId> ids, Epoch epoch = 1) {
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

// What a member lacks of its part: no plan can move less.
uint64_t LowerBound(const std::vector<TensorShape>& tensors, const World& from, const World& to) {
  uint64_t bytes = 0;
  for (const TensorShape& t : tensors) {
    for (uint32_t slot = 0; slot < to.members.size(); ++slot) {
      const Box part = PartOf(t, static_cast<uint32_t>(to.members.size()), slot);
      uint64_t has = 0;
      if (const auto before = from.SlotOf(to.members[slot].member)) {
        has =
            Intersect(part, PartOf(t, static_cast<uint32_t>(from.members.size()), *before)).size();
      }
      bytes += (part.size() - has) * t.element_bytes;
    }
  }
  return bytes;
}

TEST(PlanTest, AnyChangeMovesExactlyWhatIsMissing) {
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

TEST(PlanTest, AfterALossEveryPartIsFoundAgain) {
  EXPECT_TRUE(rc::check([] {
    const auto n = *rc::gen::inRange<MemberId>(2, 9);
    std::vector<MemberId> ids;
    for (MemberId i = 0; i < n; ++i) ids.push_back(i);
    const World from = Members(ids);
    ids.erase(ids.begin() + *rc::gen::inRange<MemberId>(0, n));
    const World to = Members(ids, 2);
    std::vector<MemberId> live;
    for (MemberId m : ids) {
      if (*rc::gen::arbitrary<bool>()) live.push_back(m);
    }
    const std::vector<TensorShape> tensors = {RandomTensor("a"), RandomTensor("b")};
    const bool copied = std::any_of(tensors.begin(), tensors.end(), [](const TensorShape& t) {
      return t.division == Division::kSharded && t.change != Change::kTransient;
    });
    // Without copies somebody must have the version in place.
    if (!copied && live.empty()) live.push_back(ids.front());
    RC_ASSERT(PlanRestore(tensors, from, to, live).ok());
  }));
}

TEST(PlanTest, WithoutCopiesTheLiveMemberGivesEverything) {
  const std::vector<TensorShape> tensors = {{"weights", 100, 4}};
  const auto plan =
      PlanRestore(tensors, Members({0, 1, 2}), Members({1, 2}, 2), std::vector<MemberId>{2});
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const BoxCopy& c : plan->copies) EXPECT_EQ(c.source, 2u);
  EXPECT_FALSE(PlanRestore(tensors, Members({0, 1, 2}), Members({1, 2}, 2), {}).ok());
}

TEST(PlanTest, TwoNeighboursLostAtOnceLoseAShardByName) {
  const std::vector<TensorShape> tensors = {{"moments", 100, 4, Division::kSharded}};
  const auto plan =
      PlanRestore(tensors, Members({0, 1, 2, 3}), Members({0, 3}, 2), std::vector<MemberId>{0, 3});
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("tensor moments elements [25"));
}

TEST(PlanTest, SendersShareTheLoadWithinOneGrain) {
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

TEST(PlanTest, APlanThatIsWrongIsCaught) {
  const std::vector<TensorShape> tensors = {{"t", 10, 4}};
  const std::vector<Holding> holdings = {{0, 0, {0, 10}, Origin::kLive}};
  const std::vector<Need> needs = {{1, 0, {0, 10}}};
  const auto plan = AssignSources(tensors, holdings, needs);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(CheckPlan(tensors, holdings, needs, *plan).ok());
  Plan shorter = *plan;
  shorter.copies[0].box.end = 9;
  EXPECT_FALSE(CheckPlan(tensors, holdings, needs, shorter).ok());
  Plan stranger = *plan;
  stranger.copies[0].source = 2;
  EXPECT_FALSE(CheckPlan(tensors, holdings, needs, stranger).ok());
  Plan twice = *plan;
  twice.copies.push_back(twice.copies[0]);
  EXPECT_FALSE(CheckPlan(tensors, holdings, needs, twice).ok());
  EXPECT_FALSE(CheckPlan(tensors, holdings, needs, Plan{}).ok());
}

}  // namespace
}  // namespace rewire
