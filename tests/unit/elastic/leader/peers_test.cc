// Silence counts only while others speak, and losses outlive the process.
#include "reconfig/elastic/leader/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

using ::testing::ElementsAre;

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

TEST_F(SilenceTest, CountsWhileAnotherMemberSpeaks) {
  Speak({0, 1}, kHeartbeat);
  Speak({0}, kLongest - 2 * kHeartbeat);
  EXPECT_FALSE(silence_.TooLong(1));
  EXPECT_EQ(silence_.Due(1), now_ + kHeartbeat);
  Speak({0}, kHeartbeat);
  EXPECT_TRUE(silence_.TooLong(1));
  EXPECT_EQ(silence_.Due(1), std::nullopt);
  EXPECT_FALSE(silence_.TooLong(0));
}

TEST_F(SilenceTest, DoesNotCountWhileAllAreSilent) {
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

TEST_F(SilenceTest, IgnoresProcessOutsideTheWorld) {
  Speak({0, 1}, kHeartbeat);
  for (const Time end = now_ + 2 * kLongest; now_ < end; now_ += kHeartbeat) {
    EXPECT_EQ(silence_.Heard(now_, 7, false), Duration{});
  }
  EXPECT_TRUE(silence_.OfAll(now_));
  EXPECT_FALSE(silence_.TooLong(0));
}

TEST_F(SilenceTest, DoesNotCountStarvedTime) {
  Speak({0, 1}, kHeartbeat);
  Speak({0}, seconds(2));
  silence_.Starved(now_, 1, seconds(1));
  EXPECT_EQ(silence_.Of(1), seconds(1) + kHeartbeat);
  silence_.Starved(now_, 1, seconds(60));
  EXPECT_EQ(silence_.Of(1), Duration{});  // never less than none
}

TEST_F(SilenceTest, DoesNotCountTimeOfStalledLeader) {
  Speak({0, 1}, kHeartbeat);
  now_ += kHeartbeat;
  silence_.Skip(now_);
  silence_.Heard(now_, 0, true);
  EXPECT_EQ(silence_.Of(1), kHeartbeat);
}

class PeersTest : public ::testing::Test {
 protected:
  PeersTest() { peers_.Start(now_); }
  Peer& Connect(MemberId member) {
    Peer& peer = peers_.Know(member);
    peer.connected = true;
    peers_.Heard(now_, member, true);
    return peer;
  }

  Peers peers_{kHeartbeat, kLongest};
  Time now_{seconds(1000)};
};

TEST_F(PeersTest, AliveExcludesUnknownLostAndFinishedMembers) {
  Connect(0);
  Connect(1).finished = true;
  Connect(2);
  EXPECT_TRUE(peers_.Lose(2, true));
  EXPECT_THAT(peers_.Alive({0, 1, 2, 3}), ElementsAre(0));
  EXPECT_TRUE(peers_.Finished(1));
  EXPECT_FALSE(peers_.Finished(3));
}

TEST_F(PeersTest, MissingExcludesLostMembers) {
  Connect(0);
  Connect(1).finished = true;
  peers_.Know(1).connected = false;
  EXPECT_FALSE(peers_.Lose(2, true));
  EXPECT_THAT(peers_.Missing({0, 1, 2, 3}), ElementsAre(3));
}

TEST_F(PeersTest, LossOutlivesTheProcessUntilTheMemberLeavesTheWorld) {
  Connect(1);
  peers_.Lose(1, true);
  peers_.Lose(7, false);  // a joiner
  peers_.Forget(1);
  EXPECT_THAT(peers_.lost(), ElementsAre(1));
  EXPECT_EQ(peers_.Find(1), nullptr);
  peers_.KeepLost({0, 1});
  EXPECT_THAT(peers_.lost(), ElementsAre(1));
  peers_.KeepLost({0});
  EXPECT_TRUE(peers_.lost().empty());
}

TEST_F(PeersTest, TellsOnlyAfterTheWelcome) {
  Connect(0).welcome_due = true;
  EXPECT_FALSE(peers_.Told(0));
  peers_.Know(0).welcome_due = false;
  EXPECT_TRUE(peers_.Told(0));
  EXPECT_FALSE(peers_.Told(1));
}

TEST_F(PeersTest, ReportsSilenceOfAllOnceUntilAMemberSpeaks) {
  Connect(0);
  now_ += kLongest;
  peers_.Count(now_);
  EXPECT_TRUE(peers_.NewlyAllSilent(now_));
  EXPECT_FALSE(peers_.NewlyAllSilent(now_));
  peers_.Heard(now_, 0, true);
  EXPECT_FALSE(peers_.NewlyAllSilent(now_));
  EXPECT_TRUE(peers_.NewlyAllSilent(now_ + kLongest));
}

TEST_F(PeersTest, ReportsAStarvedMemberOnceUntilItSpeaks) {
  Connect(0);
  EXPECT_TRUE(peers_.Starved(now_, 0, kHeartbeat));
  EXPECT_FALSE(peers_.Starved(now_, 0, kHeartbeat));
  peers_.Heard(now_, 0, true);
  EXPECT_TRUE(peers_.Starved(now_, 0, kHeartbeat));
  EXPECT_FALSE(peers_.Starved(now_, 5, kHeartbeat));
}

TEST_F(PeersTest, WatchesConnectedMembersOnly) {
  Connect(0);
  Connect(1);
  Connect(2).finished = true;
  for (const Time end = now_ + kLongest; now_ < end;) {
    now_ += kHeartbeat;
    peers_.Heard(now_, 0, true);
  }
  EXPECT_THAT(peers_.TooSilent(now_, false), ElementsAre(1));
  EXPECT_THAT(peers_.Quiet(), ElementsAre(1));
  EXPECT_EQ(peers_.NextDue(), now_ + kLongest);  // of member 0
  peers_.Lose(0, true);
  peers_.Lose(1, true);
  EXPECT_EQ(peers_.NextDue(), std::nullopt);
}

}  // namespace
}  // namespace rewire::elastic
