// The leader's choice of cuts: only the members that have a communicator are asked, idle
// communicators switch at their next operation, and pending swaps are replaced or queued.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/elastic/leader/leader_driver.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const CommunicatorId kPair{0xbbbbbbbb00000000, 1};

// Three members of an unmodified program with a communicator over all, and a communicator over
// members 0 and 2.
class LeaderCutsTest : public LeaderTest {
 protected:
  explicit LeaderCutsTest(bool cooperates = false) : LeaderTest(cooperates) {
    d.Say(0, CommunicatorCreated{kPair, 2, {0}, false, ""});
    d.Say(2, CommunicatorCreated{kPair, 2, {1}, false, ""});
    Stand(0, {});
  }
  // Every member reports both communicators on generation `in_use`.
  void Stand(Epoch in_use, const std::vector<PendingSwap>& pair_pending, bool p2p = false) {
    for (MemberId m : kThree) d.Say(m, Position{kComm, true, in_use, false, 0, {}, {}});
    for (MemberId m : {0u, 2u}) {
      d.Say(m, Position{kPair, true, 0, p2p, 0, pair_pending, {}});
    }
  }
  // Runs from the request to the proposal; the world's communicator advances, the pair's does not.
  void Begin(Epoch epoch, uint64_t pair_issued) {
    epoch_ = epoch;
    request_ = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
    ASSERT_TRUE(d.Store());
    for (const CommunicatorId& id : {kComm, kPair}) {
      d.Say(0, Minted{epoch, id, UniqueIdBytes(128, 'u')});
    }
    for (uint64_t issued : {100, 200}) {
      for (MemberId m : kThree) {
        std::vector<CommunicatorCounter> counters{{kComm, issued + m}};
        if (m != 1) counters.push_back({kPair, pair_issued});
        d.Say(m, issued == 100 ? Message(Agreed(epoch, kLookRound, counters))
                               : Message(Prepared{epoch, true, "", 0, counters}));
      }
    }
  }
  Cut CutOf(MemberId member, const CommunicatorId& id) const {
    const std::optional<Propose> propose = d.Sent<Propose>(member);
    EXPECT_TRUE(propose.has_value());
    for (const Cut& cut : propose->cuts) {
      if (cut.communicator == id) return cut;
    }
    ADD_FAILURE() << "no cut of this communicator";
    return {};
  }
  std::vector<CommunicatorId> Proposed(MemberId member) const {
    std::vector<CommunicatorId> ids;
    const std::optional<Propose> propose = d.Sent<Propose>(member);
    for (const Cut& cut : propose->cuts) ids.push_back(cut.communicator);
    return ids;
  }
  // All members agree and the swap is committed; no member has acknowledged the decision.
  void Decide() {
    Begin(2, 50);
    Agree();
  }
  void Agree() {
    const uint32_t round = d.Sent<Propose>(0)->round;
    for (MemberId m : kThree) d.Say(m, Agreed(epoch_, round));
    ASSERT_TRUE(d.Store());
  }
  void Commit() {
    Agree();
    for (MemberId m : kThree) d.Say(m, Entered{epoch_, 0});
  }

  Epoch epoch_ = 0;
  uint64_t request_ = 0;
};

TEST_F(LeaderCutsTest, ProposesCutOnlyToMembersOfCommunicator) {
  Begin(2, 50);
  EXPECT_THAT(Proposed(0), ElementsAre(kComm, kPair));
  EXPECT_THAT(Proposed(1), ElementsAre(kComm));
  EXPECT_THAT(Proposed(2), ElementsAre(kComm, kPair));
  Commit();
  EXPECT_EQ(d.leader.record().cuts.size(), 2u);
  EXPECT_EQ(d.leader.StatusOf(request_).state, RequestState::kDone);
}

class CooperatingCutsTest : public LeaderCutsTest {
 protected:
  CooperatingCutsTest() : LeaderCutsTest(true) {}
};

// An update swaps what has not passed its cut, so an idle communicator needs no cut of its own.
TEST_F(CooperatingCutsTest, ASwapEndsAtAnUpdate) {
  Begin(2, 50);
  EXPECT_THAT(Proposed(0), ElementsAre(kComm, kPair, kUpdateBoundary));
  EXPECT_THAT(Proposed(1), ElementsAre(kComm, kUpdateBoundary));
  EXPECT_GT(CutOf(0, kPair).warm, 50u);
  EXPECT_EQ(CutOf(0, kUpdateBoundary), CutOf(1, kUpdateBoundary));
  Commit();
  EXPECT_EQ(d.leader.record().cuts.size(), 3u);
}

TEST_F(LeaderCutsTest, RefusalNamesMemberCommunicatorAndReason) {
  Begin(2, 50);
  for (uint32_t round = 0; round < 8; ++round) {
    d.Say(2, NotAgreed(2, round, kPair, "pinned by a CUDA graph"));
  }
  EXPECT_THAT(d.leader.StatusOf(request_).text,
              HasSubstr("member 2 refuses the cut of communicator bbbbbbbb: pinned by a CUDA "
                        "graph"));
}

TEST_F(LeaderCutsTest, SwapEndsWhenAllAcknowledgeDecision) {
  Begin(2, 50);
  Commit();
  EXPECT_TRUE(d.leader.steady());
  EXPECT_EQ(d.leader.StatusOf(request_).state, RequestState::kDone);
}

TEST_F(LeaderCutsTest, SwapWaitsForLastAcknowledgement) {
  Decide();
  for (MemberId m : {0u, 2u}) d.Say(m, Entered{epoch_, 0});
  d.Pass(LeaderOptions{}.enter / 2);
  EXPECT_EQ(d.leader.phase(), Phase::kCommitted);
  EXPECT_EQ(d.leader.StatusOf(request_).state, RequestState::kRunning);
  d.Say(1, Entered{epoch_, 0});
  EXPECT_TRUE(d.leader.steady());
  EXPECT_EQ(d.leader.StatusOf(request_).state, RequestState::kDone);
}

TEST_F(LeaderCutsTest, LosesMemberThatDoesNotAcknowledgeDecidedSwap) {
  Decide();
  for (MemberId m : {0u, 2u}) d.Say(m, Entered{epoch_, 0});
  d.Pass(LeaderOptions{}.enter + seconds(1));
  EXPECT_TRUE(d.Noted("member 1 is lost: it did not acknowledge the decided swap in time"));
}

TEST_F(LeaderCutsTest, LosesNobodyWhenAllAreSilentAfterDecidedSwap) {
  Decide();
  d.silent = {0, 1, 2};
  d.Pass(LeaderOptions{}.enter + seconds(1));
  EXPECT_FALSE(d.Noted("is lost"));
  EXPECT_EQ(d.leader.phase(), Phase::kCommitted);
}

TEST_F(LeaderCutsTest, MembersHaveFullTimeAfterSilenceOfAll) {
  Decide();
  d.silent = {0, 1, 2};
  d.Pass(LeaderOptions{}.enter - milliseconds(200));
  d.silent = {1};
  for (MemberId m : {0u, 2u}) d.Say(m, Entered{epoch_, 0});
  d.Pass(seconds(2));
  EXPECT_FALSE(d.Noted("is lost"));
  d.Say(1, Entered{epoch_, 0});
  EXPECT_TRUE(d.leader.steady());
}

TEST_F(LeaderCutsTest, IdleCommunicatorSwitchesAtNextOperation) {
  Begin(2, 50);
  EXPECT_EQ(CutOf(0, kPair), (Cut{kPair, 50, 50}));
  EXPECT_GT(CutOf(0, kComm).warm, 202u);
}

TEST_F(LeaderCutsTest, IdleCommunicatorGetsMarginAfterTwoRefusals) {
  Begin(2, 50);
  for (uint32_t round = 0; round < 2; ++round) {
    EXPECT_EQ(CutOf(0, kPair), (Cut{kPair, 50, 50}));
    d.Say(2, NotAgreed(2, round, kPair, "a thread is inside"));
  }
  EXPECT_GE(CutOf(0, kPair).warm, 50u + 16u);
  EXPECT_GT(CutOf(0, kPair).cut, CutOf(0, kPair).warm);
}

TEST_F(LeaderCutsTest, CommunicatorWithPointToPointGetsNoIdleCut) {
  Stand(0, {}, true);
  Begin(2, 0);
  EXPECT_EQ(CutOf(0, kPair), (Cut{kPair, 16, 20}));
  Commit();
  Stand(2, {{2, 16, 20}}, true);
  Begin(3, 0);
  // The cut is the same: the new generation replaces the pending one.
  EXPECT_EQ(CutOf(2, kPair), (Cut{kPair, 16, 20}));
  const std::vector<PendingCut> pending = d.leader.Pending();
  ASSERT_EQ(pending.size(), 2u);
  EXPECT_EQ(pending[0].member, 0u);
  EXPECT_EQ(pending[0].communicator, kPair);
  EXPECT_THAT(pending[0].why, HasSubstr("point-to-point"));
}

TEST_F(LeaderCutsTest, ReplacesIdlePendingSwapAtSameOperation) {
  Stand(2, {{2, 50, 50}});
  Begin(2, 50);
  EXPECT_EQ(CutOf(0, kPair), (Cut{kPair, 50, 50}));
  EXPECT_THAT(d.leader.Pending().at(0).why, HasSubstr("idle"));
}

TEST_F(LeaderCutsTest, QueuesNewSwapAfterNearPendingSwap) {
  Stand(2, {{2, 55, 59}}, true);
  Begin(2, 50);
  EXPECT_EQ(CutOf(0, kPair).warm, 66u);
  Stand(2, {{2, 55, 80}}, true);
  d.Say(2, NotAgreed(2, 0, kComm, "too far"));
  EXPECT_EQ(CutOf(0, kPair).warm, 80u);
}

TEST_F(LeaderCutsTest, RetiresGenerationThatAllMembersHavePassed) {
  Begin(2, 50);
  Commit();
  d.out.clear();
  d.Say(0, Position{kComm, true, 2, false, 0, {}, {0}});
  d.Say(2, Position{kComm, true, 2, false, 0, {}, {0}});
  EXPECT_FALSE(d.Sent<Retire>(0).has_value());
  d.Say(1, Position{kComm, true, 2, false, 0, {}, {0}});
  for (MemberId m : kThree) {
    EXPECT_THAT(d.Sent<Retire>(m).value().generations, ElementsAre(GenerationId{0, kComm}));
  }
}

// Members destroy what they were told to before they build, and nothing while they build.
TEST_F(LeaderCutsTest, RetiresNothingWhileMembersBuild) {
  const auto old = [&](std::vector<Epoch> epochs) {
    for (MemberId m : kThree) d.Say(m, Position{kComm, true, 5, false, 0, {}, epochs});
  };
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  d.out.clear();
  old({3});
  EXPECT_FALSE(d.Sent<Retire>(0).has_value());
  for (MemberId m : kThree) d.Say(m, Prepared{2, false, "no memory", 0, {}});
  ASSERT_EQ(d.leader.phase(), Phase::kSteady);
  for (MemberId m : kThree) {
    EXPECT_THAT(d.Sent<Retire>(m).value().generations, ElementsAre(GenerationId{3, kComm}));
  }
}

TEST_F(LeaderCutsTest, RetiresAfterARestart) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  for (MemberId m : kThree) d.Say(m, Position{kComm, true, 5, false, 0, {}, {3}});
  d.out.clear();
  d.Say(0, Prepared{2, false, "an injected failure", 0, {}, true});
  ASSERT_EQ(d.leader.phase(), Phase::kReserve);
  for (MemberId m : kThree) {
    EXPECT_THAT(d.Sent<Retire>(m).value().generations, ElementsAre(GenerationId{3, kComm}));
  }
}

TEST_F(LeaderCutsTest, PreparesNothingUntilReconnectedMemberHasReported) {
  d.Connect(2, true, 1, false, 1);
  d.Say(2, CommunicatorCreated{kComm, 3, {2}, false, ""});
  d.Say(2, CommunicatorCreated{kPair, 2, {1}, false, ""});
  const uint64_t id = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);
  EXPECT_THAT(d.leader.StatusOf(id).text, HasSubstr("member 2 has not reported its generations"));
  d.Say(2, Position{kPair, true, 0, false, 0, {}, {}});
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
}

TEST_F(LeaderCutsTest, RetiresDroppedGenerationThatNobodyHasPending) {
  Stand(2, {{2, 50, 50}});
  d.out.clear();
  d.Say(0, Position{kPair, true, 0, false, 0, {{3, 50, 50}}, {2}});
  EXPECT_FALSE(d.Sent<Retire>(0).has_value());
  d.Say(2, Position{kPair, true, 0, false, 0, {{3, 50, 50}}, {2}});
  EXPECT_THAT(d.Sent<Retire>(0).value().generations, ElementsAre(GenerationId{2, kPair}));
  EXPECT_THAT(d.Sent<Retire>(2).value().generations, ElementsAre(GenerationId{2, kPair}));
}

TEST_F(LeaderCutsTest, RetiresGenerationOfDestroyedCommunicator) {
  d.out.clear();
  for (MemberId m : {0u, 2u}) {
    d.Say(m, CommunicatorDestroyed{kPair});
    d.Say(m, Position{kPair, false, 0, false, 0, {}, {1}});
  }
  EXPECT_THAT(d.Sent<Retire>(2).value().generations, ElementsAre(GenerationId{1, kPair}));
}

TEST_F(LeaderCutsTest, RetiresNothingUntilReconnectedMemberHasReported) {
  d.Say(0, Position{kPair, true, 2, false, 0, {}, {0}});
  d.Connect(2, true, 1, false, 1);
  d.out.clear();
  d.Say(0, Position{kPair, true, 2, false, 0, {}, {0, 1}});
  EXPECT_FALSE(d.Sent<Retire>(0).has_value());
  d.Say(2, Position{kPair, true, 0, false, 0, {{2, 50, 50}}, {}});
  EXPECT_THAT(d.Sent<Retire>(0).value().generations, ElementsAre(GenerationId{1, kPair}));
}

TEST_F(LeaderCutsTest, RetiresGenerationsInBatches) {
  const auto report = [&](const std::vector<Epoch>& world, const std::vector<Epoch>& pair) {
    for (MemberId m : kThree) d.Say(m, Position{kComm, true, 5, false, 0, {}, world});
    for (MemberId m : {0u, 2u}) d.Say(m, Position{kPair, true, 5, false, 0, {}, pair});
  };
  report({2}, {});
  d.out.clear();
  for (MemberId m : {0u, 2u}) d.Say(m, Position{kPair, true, 5, false, 0, {}, {1}});
  EXPECT_FALSE(d.Sent<Retire>(0).has_value());  // the previous batch is not retired yet
  report({}, {1});
  EXPECT_THAT(d.Sent<Retire>(2).value().generations, ElementsAre(GenerationId{1, kPair}));
}

TEST_F(LeaderCutsTest, SuccessorContinuesBegunBatch) {
  WorldRecord record = d.leader.record();
  LeaderDriver next(LeaderDriver::Options(3), record);
  for (MemberId m : kThree) {
    Hello hello{m, 100 + m, 1, true, "addr", false, 1, 1, {}};
    if (m == 1) hello.retiring = {{4, kComm}};  // only member 1 received it, and has retired it
    next.leader.OnConnect(next.now, hello, &next.out);
  }
  for (MemberId m : kThree) {
    const std::vector<Epoch> old = m == 1 ? std::vector<Epoch>{2} : std::vector<Epoch>{2, 4};
    next.Say(m, Position{kComm, true, 5, false, 0, {}, old});
  }
  EXPECT_THAT(next.Sent<Retire>(0).value().generations, ElementsAre(GenerationId{4, kComm}));
  EXPECT_FALSE(next.Sent<Retire>(1).has_value());
  for (MemberId m : kThree) next.Say(m, Position{kComm, true, 5, false, 0, {}, {2}});
  EXPECT_THAT(next.Sent<Retire>(1).value().generations, ElementsAre(GenerationId{2, kComm}));
}

TEST_F(LeaderCutsTest, NamesCommunicatorThatReserveWaitsFor) {
  const CommunicatorId half{0xcccccccc00000000, 1};
  d.Say(0, CommunicatorCreated{half, 2, {0}, false, ""});
  const uint64_t id = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);
  EXPECT_THAT(d.leader.StatusOf(id).text, HasSubstr("communicator cccccccc has been reported by 1 "
                                                    "of its 2 ranks"));
  d.Pass(seconds(61));
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kFailed);
  EXPECT_THAT(d.leader.StatusOf(id).text, HasSubstr("cccccccc"));
}

TEST_F(LeaderCutsTest, RejectsRebuildWithoutCommunicators) {
  for (MemberId m : kThree) d.Say(m, CommunicatorDestroyed{kComm});
  for (MemberId m : {0u, 2u}) d.Say(m, CommunicatorDestroyed{kPair});
  EXPECT_THAT(d.AskInVain({RequestKind::kRebuild, 0, {}, {}, ""}), HasSubstr("nothing to rebuild"));
}

TEST_F(LeaderCutsTest, ReportsStoreThatDoesNotAnswerCommit) {
  Begin(2, 50);
  for (MemberId m : kThree) d.Say(m, Agreed(2, 0));
  EXPECT_EQ(d.leader.phase(), Phase::kCommitting);
  d.out.clear();
  d.Pass(seconds(31));
  EXPECT_TRUE(d.Noted("the store has not answered the commit of epoch 2"));
  EXPECT_EQ(d.leader.phase(), Phase::kCommitting);
  d.out.clear();
  d.Pass(seconds(31));
  EXPECT_TRUE(d.Noted("the store has not answered"));
}

TEST_F(LeaderCutsTest, ReportsRepeatedErrorOfStoreOnce) {
  Begin(2, 50);
  for (MemberId m : kThree) d.Say(m, Agreed(2, 0));
  const auto fail = [&](const char* why) {
    d.out.clear();
    d.leader.OnStoreResult(d.now, absl::UnavailableError(why), &d.out);
    return d.Noted("the store does not answer: ");
  };
  EXPECT_TRUE(fail("no space"));
  d.Pass(seconds(1));
  EXPECT_FALSE(fail("no space"));
  EXPECT_TRUE(fail("no disk"));
  EXPECT_THAT(d.leader.StatusOf(request_).text,
              HasSubstr("waits: the store does not answer: no disk"));
}

}  // namespace
}  // namespace rewire::elastic
