// Silence counts only while others speak.
#include "reconfig/elastic/leader/silence.h"

#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

constexpr Duration kHeartbeat = milliseconds(500), kLongest = seconds(3);

class SilenceTest : public ::testing::Test {
 protected:
  SilenceTest() { silence_.Start(now_); }
  // Members speak each heartbeat for `length`; the first at once.
  void Speak(std::initializer_list<MemberId> members, Duration length) {
    for (const Time end = now_ + length; now_ < end; now_ += kHeartbeat) {
      for (const MemberId m : members) silence_.Heard(now_, m, true);
    }
    silence_.Count(now_);
  }

  Silence silence_{kHeartbeat, kLongest};
  Time now_{seconds(1000)};
};

TEST_F(SilenceTest, OfOneMemberCountsWhileAnotherSpeaks) {
  Speak({0, 1}, kHeartbeat);
  Speak({0}, kLongest - 2 * kHeartbeat);
  EXPECT_FALSE(silence_.TooLong(1));
  EXPECT_EQ(silence_.Due(1), now_ + kHeartbeat);
  Speak({0}, kHeartbeat);
  EXPECT_TRUE(silence_.TooLong(1));
  EXPECT_EQ(silence_.Due(1), std::nullopt);
  EXPECT_FALSE(silence_.TooLong(0));
}

TEST_F(SilenceTest, OfAllMembersCountsForNone) {
  Speak({0, 1}, kHeartbeat);
  now_ += 10 * kLongest;
  silence_.Count(now_);
  EXPECT_TRUE(silence_.OfAll(now_));
  EXPECT_FALSE(silence_.TooLong(0));
  // The first member that speaks again does not cost the other.
  EXPECT_EQ(silence_.Heard(now_, 0, true), 10 * kLongest + kHeartbeat);
  EXPECT_EQ(silence_.Of(1), Duration{});
  Speak({0}, kLongest);
  EXPECT_TRUE(silence_.TooLong(1));
}

TEST_F(SilenceTest, AProcessOutsideTheWorldShowsNothing) {
  Speak({0, 1}, kHeartbeat);
  for (const Time end = now_ + 2 * kLongest; now_ < end; now_ += kHeartbeat) {
    EXPECT_EQ(silence_.Heard(now_, 7, false), Duration{});
  }
  EXPECT_TRUE(silence_.OfAll(now_));
  EXPECT_FALSE(silence_.TooLong(0));
}

TEST_F(SilenceTest, StarvedTimeDoesNotCount) {
  Speak({0, 1}, kHeartbeat);
  Speak({0}, seconds(2));
  silence_.Starved(now_, 1, seconds(1));
  EXPECT_EQ(silence_.Of(1), seconds(1) + kHeartbeat);
  silence_.Starved(now_, 1, seconds(60));
  EXPECT_EQ(silence_.Of(1), Duration{});  // never less than none
}

TEST_F(SilenceTest, ATimeInWhichTheLeaderDidNotRunDoesNotCount) {
  Speak({0, 1}, kHeartbeat);
  now_ += kHeartbeat;
  silence_.Skip(now_);
  silence_.Heard(now_, 0, true);
  EXPECT_EQ(silence_.Of(1), kHeartbeat);
}

}  // namespace
}  // namespace rewire::elastic
