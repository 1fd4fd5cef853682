// How long a new leader waits for the members of the stored world.
#include "reconfig/elastic/leader/recovery.h"

#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

constexpr Duration kGrace = seconds(10), kSilence = seconds(3);
const Time kDeath = Time{} + seconds(1000);

class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() { recovery_.Begin(kDeath); }
  Recovery recovery_{kGrace, kSilence};
};

TEST_F(RecoveryTest, EndsWhenAllMembersAreBack) {
  EXPECT_EQ(recovery_.deadline(), kDeath + kGrace);
  EXPECT_TRUE(recovery_.TryEnd(kDeath + seconds(1), 0, 3, false));
  EXPECT_EQ(recovery_.deadline(), std::nullopt);
}

TEST_F(RecoveryTest, FirstMemberGivesOthersTheirFullTime) {
  EXPECT_FALSE(recovery_.TryEnd(kDeath + seconds(9), 2, 3, false));
  EXPECT_FALSE(recovery_.TryEnd(kDeath + seconds(18), 1, 3, false));
  EXPECT_TRUE(recovery_.TryEnd(kDeath + seconds(19), 1, 3, false));
}

TEST_F(RecoveryTest, WaitsSeveralTimesWhileNoMemberIsBack) {
  Time now = kDeath;
  for (int turn = 1; turn < 12; ++turn) {
    now += kGrace;
    EXPECT_FALSE(recovery_.TryEnd(now, 3, 3, true)) << turn;
  }
  EXPECT_FALSE(recovery_.TryEnd(now + kGrace - milliseconds(1), 3, 3, true));
  EXPECT_TRUE(recovery_.TryEnd(now + kGrace, 3, 3, true));
}

TEST_F(RecoveryTest, StalledHostCostsNoMember) {
  EXPECT_FALSE(recovery_.TryEnd(kDeath + kGrace, 1, 3, true));
  EXPECT_FALSE(recovery_.TryEnd(kDeath + kGrace + kSilence - milliseconds(1), 1, 3, false));
  EXPECT_TRUE(recovery_.TryEnd(kDeath + kGrace + kSilence, 1, 3, false));
}

TEST_F(RecoveryTest, SilenceOfAllMovesTheDeadline) {
  recovery_.Postpone(seconds(5));
  EXPECT_FALSE(recovery_.TryEnd(kDeath + kGrace, 1, 3, false));
  EXPECT_TRUE(recovery_.TryEnd(kDeath + kGrace + seconds(5), 1, 3, false));
  recovery_.Postpone(seconds(5));  // nothing is waited for
  EXPECT_EQ(recovery_.deadline(), std::nullopt);
}

}  // namespace
}  // namespace rewire::elastic
