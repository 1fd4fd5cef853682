// Requests wait, are merged into one target, and keep their results.
#include "reconfig/elastic/leader/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Time kNow = Time{} + seconds(1000);

ChangeRequest Resize(uint32_t size) { return {RequestKind::kResize, size, {}, {}, ""}; }
ChangeRequest Drain(std::vector<MemberId> members, std::optional<Duration> within = {}) {
  return {RequestKind::kDrain, 0, std::move(members), within, ""};
}
ChangeRequest Rebuild() { return {RequestKind::kRebuild, 0, {}, {}, ""}; }

class RequestQueueTest : public ::testing::Test {
 protected:
  RequestQueueTest() {
    for (MemberId m = 0; m < 4; ++m) record_.world.members.push_back({m, 100 + m, ""});
    record_.next_member = 4;
  }
  uint64_t Add(const ChangeRequest& change) {
    return queue_.Add(change, 4,
                      change.within ? std::optional<Time>(kNow + *change.within) : std::nullopt);
  }
  MergedRequests Take() { return queue_.TakeMerged(record_, 6); }

  RequestQueue queue_;
  WorldRecord record_;
};

TEST_F(RequestQueueTest, MergesWaitingRequestsInTheirOrder) {
  const uint64_t drain = Add(Drain({1}));
  const uint64_t resize = Add(Resize(4));
  EXPECT_EQ(queue_.StatusOf(drain).state, RequestState::kWaiting);
  const MergedRequests merged = Take();
  EXPECT_THAT(merged.requests, ElementsAre(drain, resize));
  EXPECT_THAT(merged.target, ElementsAre(0, 4, 2, 3));
  EXPECT_EQ(merged.next_member, 5u);
  EXPECT_EQ(merged.what, "drain 1; resize to 4");
  EXPECT_FALSE(merged.only_rebuild);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(RequestQueueTest, ALaterResizeReplacesAWaitingOne) {
  const uint64_t smaller = Add(Resize(2));
  const uint64_t drain = Add(Drain({1}));
  const uint64_t back = Add(Resize(3));
  EXPECT_EQ(queue_.StatusOf(smaller).state, RequestState::kFailed);
  EXPECT_THAT(queue_.StatusOf(smaller).text, HasSubstr("resize to 3"));
  queue_.PutBack({smaller});  // interrupted after it was taken
  const MergedRequests merged = Take();
  EXPECT_THAT(merged.requests, ElementsAre(drain, back));
  EXPECT_THAT(merged.target, ElementsAre(0, 2, 3));
}

TEST_F(RequestQueueTest, TakesRequestsWithADeadlineFirst) {
  const uint64_t rebuild = Add(Rebuild());
  const uint64_t drain = Add(Drain({3}, seconds(60)));
  EXPECT_THAT(Take().requests, ElementsAre(drain));
  const MergedRequests rest = Take();
  EXPECT_THAT(rest.requests, ElementsAre(rebuild));
  EXPECT_TRUE(rest.only_rebuild);
}

TEST_F(RequestQueueTest, DrainOfMembersThatHaveLeftIsFulfilled) {
  const uint64_t drain = Add(Drain({2}));
  record_.world.members.erase(record_.world.members.begin() + 2);
  EXPECT_THAT(Take().requests, IsEmpty());
  EXPECT_EQ(queue_.StatusOf(drain).state, RequestState::kDone);
}

TEST_F(RequestQueueTest, ReplacementOfALostMemberRestoresTheSize) {
  Add({RequestKind::kReplace, 0, {2}, {}, ""});
  record_.world.members.erase(record_.world.members.begin() + 2);
  EXPECT_EQ(Take().target.size(), 4u);
}

TEST_F(RequestQueueTest, FailsARequestThatCannotBeMerged) {
  const uint64_t first = Add(Drain({1}));
  const uint64_t second = Add({RequestKind::kReplace, 0, {1}, {}, ""});
  const MergedRequests merged = Take();
  EXPECT_THAT(merged.requests, ElementsAre(first));
  EXPECT_THAT(merged.failures, ElementsAre(HasSubstr("member 1 is not in the world")));
  EXPECT_EQ(queue_.StatusOf(second).state, RequestState::kFailed);
}

TEST_F(RequestQueueTest, ADrainOfMembersThatLeaveAnywayIsPartOfTheChange) {
  const uint64_t first = Add({RequestKind::kResize, 1, {}, {}, ""});
  const uint64_t second = Add(Drain({2}));
  const MergedRequests merged = Take();
  EXPECT_THAT(merged.requests, ElementsAre(first, second));
  EXPECT_EQ(merged.target.size(), 1u);
}

TEST_F(RequestQueueTest, GivesUpAfterSeveralAttempts) {
  const uint64_t id = Add(Rebuild());
  for (int attempt = 0; attempt < 5; ++attempt) {
    ASSERT_THAT(Take().requests, ElementsAre(id));
    queue_.PutBack({id});
  }
  EXPECT_THAT(Take().failures, ElementsAre(HasSubstr("given up after several attempts")));
}

TEST_F(RequestQueueTest, PutsInterruptedRequestsInFrontOfLaterOnes) {
  const uint64_t first = Add(Rebuild());
  Take();
  const uint64_t second = Add(Drain({1}));
  queue_.PutBack({first});
  EXPECT_THAT(Take().requests, ElementsAre(first, second));
}

TEST_F(RequestQueueTest, FailWaitingKeepsTheReason) {
  const uint64_t id = Add(Rebuild());
  queue_.FailWaiting("the job has finished");
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.StatusOf(id).text, "the job has finished");
  EXPECT_EQ(queue_.StatusOf(99).state, RequestState::kUnknown);
}

TEST_F(RequestQueueTest, KnowsMembersThatHaveStillToLeave) {
  const uint64_t running = Add(Drain({0}, seconds(1)));
  Take();
  const uint64_t waiting = Add(Drain({1, 2}, seconds(2)));
  Add(Resize(3));
  EXPECT_THAT(queue_.WithDeadline({running}), ElementsAre(waiting, running));
  EXPECT_THAT(queue_.NotGone(waiting, {0, 2, 3}), ElementsAre(2));
  EXPECT_EQ(queue_.gone_by(waiting), kNow + seconds(2));
  queue_.SetGoneBy(waiting, std::nullopt);
  EXPECT_THAT(queue_.WithDeadline({}), IsEmpty());
}

TEST_F(RequestQueueTest, AppliesWaitingRequestsToAWorld) {
  Add(Drain({3}));
  Add(Drain({9}));  // cannot be fulfilled: skipped
  MemberId next = 4;
  EXPECT_THAT(queue_.AfterWaiting({0, 1, 2, 3}, 6, &next), ElementsAre(0, 1, 2));
  EXPECT_EQ(next, 4u);
}

}  // namespace
}  // namespace rewire::elastic
