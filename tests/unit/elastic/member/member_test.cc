// The member's state machine, driven by hand.
#include "reconfig/elastic/member/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

using testing::HasSubstr;

const CommunicatorId kComm{0xaaaaaaaa00000000, 1};
const World kOld{1, {{0, 10, "a"}, {1, 11, "b"}}};
const World kNew{2, {{0, 10, "a"}, {1, 11, "b"}, {2, 12, "c"}}};
const World kAlone{2, {{1, 11, "b"}}};

WorldRecord Record(const World& world) {
  WorldRecord record;
  record.world = world;
  record.secret.bytes[0] = 5;
  return record;
}

// Member 1 of the world kOld, connected and welcomed.
class MemberTest : public testing::Test {
 protected:
  MemberTest() : member(Options()) {
    member.OnCommunicatorCreated(now, {kComm, 2, {1}, false, ""}, &out);
    member.OnConnected(now, &out);
    Hear(Welcome{kOld, false, {{9}}});
    Hear(Commit{Record(kOld)});
  }
  static MemberOptions Options() {
    MemberOptions o;
    o.member = 1;
    o.incarnation = 11;
    o.cooperates = true;
    return o;
  }

  void Hear(const Message& m) { member.OnMessage(now, m, &out); }
  template <typename T>
  std::optional<T> Last() const {
    for (auto it = out.rbegin(); it != out.rend(); ++it) {
      if (const auto* a = std::get_if<T>(&*it)) return *a;
    }
    return std::nullopt;
  }
  template <typename T>
  std::optional<T> Sent() const {
    for (auto it = out.rbegin(); it != out.rend(); ++it) {
      const auto* a = std::get_if<SendMessage>(&*it);
      if (a == nullptr) continue;
      if (const auto* m = std::get_if<T>(&a->message)) return *m;
    }
    return std::nullopt;
  }
  // Advances in steps, like a running owner.
  void Tick(Duration after) {
    for (const Time end = now + after; now < end;) {
      now = std::min(end, now + seconds(1));
      member.OnTick(now, Heartbeat{3, {}}, &out);
    }
  }
  // The process is stopped.
  void Stall(Duration time) {
    now += time;
    member.OnTick(now, Heartbeat{3, {}}, &out);
  }
  void PrepareIt(TransitionKind kind, const World& to, const World& from = kOld) {
    Hear(Prepare{2, kind, from, to, {{5}}, 1000, {}});
    Hear(Build{2, {{kComm, 3, {1}, "id"}}});
    member.OnBuilt(now, 2, absl::OkStatus(), {{kComm, 4}}, &out);
    if (kind != TransitionKind::kSwap) member.OnPlanned(now, 2, uint64_t{77}, &out);
  }
  void Pledge(const Cut& cut, bool ok = true) {
    Hear(Propose{2, 0, {cut}});
    std::optional<CutRefusal> refusal;
    if (!ok) refusal = CutRefusal{cut.communicator, "too far"};
    member.OnPledged(now, 2, 0, refusal, {}, &out);
  }
  void Verified() {
    PrepareIt(TransitionKind::kBoundary, kNew);
    Pledge({kUpdateBoundary, 8, 8});
    Hear(Decide{2, 0, true});
    member.OnBoundary(now, {8, true, {}, {}, {}}, &out);
    member.OnStreamed(now, 2, absl::OkStatus(), 1, 1, &out);
  }

  Time now = Time{} + seconds(50);
  std::vector<MemberAction> out;
  Member member;
};

TEST_F(MemberTest, EntersReportedWorld) {
  EXPECT_EQ(Sent<Hello>().value().member, 1u);
  EXPECT_EQ(Sent<CommunicatorCreated>().value().communicator, kComm);
  EXPECT_EQ(Last<EnterWorld>()->world, kOld);
  EXPECT_EQ(Last<EnterWorld>()->secret.bytes[0], 5);
}

TEST_F(MemberTest, SwapsAfterDecision) {
  PrepareIt(TransitionKind::kSwap, World{2, kOld.members});
  EXPECT_FALSE(Last<MakePlan>().has_value());
  EXPECT_EQ(Sent<Prepared>().value().counters.size(), 1u);
  Pledge({kComm, 20, 24});
  EXPECT_TRUE(Sent<rewire::elastic::Pledge>().value().ok);
  Hear(Decide{2, 0, true});
  EXPECT_TRUE(Last<DecideCuts>()->go);
  Hear(Commit{Record({2, kOld.members})});
  EXPECT_EQ(member.epoch(), 2u);
  member.OnEntered(now, 2, 0, &out);
  EXPECT_EQ(Sent<Entered>().value().epoch, 2u);
  const GenerationId old{0, kComm};
  Hear(Retire{{old}});
  EXPECT_EQ(Last<RetireGenerations>()->generations, std::vector<GenerationId>{old});
}

TEST_F(MemberTest, AcknowledgesDecisionBeforeCommitArrives) {
  PrepareIt(TransitionKind::kSwap, World{2, kOld.members});
  Pledge({kComm, 20, 24});
  Hear(Decide{2, 0, true});
  member.OnEntered(now, 2, 0, &out);
  EXPECT_FALSE(Sent<Entered>().has_value());
  Hear(Commit{Record({2, kOld.members})});
  EXPECT_EQ(Sent<Entered>().value().epoch, 2u);
}

TEST_F(MemberTest, ReportsChangedPositionsAndAllAfterReconnect) {
  const CommunicatorId other{0xbbbbbbbb00000000, 1};
  const Position idle{kComm, true, 0, false, 0, {{2, 5, 5}}, {}};
  const Position busy{other, true, 2, false, 1, {}, {0}};
  member.OnPositions(now, {idle, busy}, &out);
  EXPECT_EQ(Sent<Position>().value(), busy);
  out.clear();
  member.OnPositions(now, {idle, busy}, &out);
  EXPECT_FALSE(Sent<Position>().has_value());
  member.OnDisconnected(now, &out);
  member.OnConnected(now, &out);
  EXPECT_EQ(Sent<Hello>().value().positions, 2u);
  EXPECT_EQ(Sent<Position>().value(), busy);
  out.clear();
  member.OnPositions(now, {idle}, &out);
  EXPECT_EQ(Sent<Position>().value(), (Position{other, false, 0, false, 0, {}, {}}));
}

TEST_F(MemberTest, RefusalNamesCommunicatorAndReason) {
  PrepareIt(TransitionKind::kSwap, World{2, kOld.members});
  Pledge({kComm, 20, 24}, false);
  EXPECT_FALSE(Sent<rewire::elastic::Pledge>().value().ok);
  EXPECT_EQ(Sent<rewire::elastic::Pledge>().value().communicator, kComm);
  EXPECT_EQ(Sent<rewire::elastic::Pledge>().value().reason, "too far");
}

TEST_F(MemberTest, ForgetsRefusedRound) {
  PrepareIt(TransitionKind::kSwap, World{2, kOld.members});
  Pledge({kComm, 20, 24});
  Hear(Decide{2, 0, false});
  EXPECT_FALSE(Last<DecideCuts>()->go);
  Hear(Decide{2, 0, true});  // impossible
  EXPECT_THAT(Last<StopProcess>()->reason, HasSubstr("not pledged"));
}

TEST_F(MemberTest, LookDoesNotPledge) {
  PrepareIt(TransitionKind::kSwap, World{2, kOld.members});
  Hear(Propose{2, kLookRound, {}});
  member.OnPledged(now, 2, kLookRound, {}, {{kComm, 12}}, &out);
  EXPECT_EQ(Sent<rewire::elastic::Pledge>().value().counters.at(0).issued, 12u);
  Hear(Commit{Record({2, kOld.members})});  // impossible
  EXPECT_THAT(Last<StopProcess>()->reason, HasSubstr("not pledged"));
}

TEST_F(MemberTest, StreamsAndAdoptsAtBoundary) {
  Verified();
  EXPECT_EQ(Last<PledgeBoundary>()->step, 8u);
  EXPECT_EQ(Last<StartStream>()->step, 8u);
  EXPECT_TRUE(Last<FinishStream>().has_value());
  EXPECT_EQ(Sent<AtBoundary>().value().live_version, 8u);
  EXPECT_FALSE(Last<Resume>().has_value());
  Hear(Commit{Record(kNew)});
  EXPECT_EQ(Last<Adopt>()->slot, 1u);
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kWorldChanged);
}

TEST_F(MemberTest, ResumesAtOnceWhenRoundWasRefused) {
  PrepareIt(TransitionKind::kBoundary, kNew);
  Pledge({kUpdateBoundary, 8, 8});
  Hear(Decide{2, 0, false});  // while the program's thread stops at 8
  out.clear();
  member.OnBoundary(now, {8, true, {}, {}, {}}, &out);
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kContinue);
  EXPECT_FALSE(member.standing());
}

TEST_F(MemberTest, ResumesAtOnceWhenRoundWasReplaced) {
  PrepareIt(TransitionKind::kBoundary, kNew);
  Pledge({kUpdateBoundary, 8, 8});
  Hear(Decide{2, 0, false});
  Hear(Propose{2, 1, {{kUpdateBoundary, 10, 10}}});
  member.OnPledged(now, 2, 1, {}, {}, &out);
  Hear(Decide{2, 1, true});
  out.clear();
  member.OnBoundary(now, {8, true, {}, {}, {}}, &out);  // the other members need it until 10
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kContinue);
  EXPECT_FALSE(Sent<AtBoundary>().has_value());
  member.OnBoundary(now, {10, true, {}, {}, {}}, &out);
  EXPECT_EQ(Sent<AtBoundary>().value().live_version, 10u);
}

TEST_F(MemberTest, LeavesWorldWithoutItself) {
  Verified();
  Hear(Commit{Record({2, {kOld.members[0]}})});
  EXPECT_FALSE(Last<Adopt>()->slot.has_value());
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kLeave);
  EXPECT_FALSE(member.NextDeadline().has_value());
}

TEST_F(MemberTest, AbortResumesProgramInOldWorld) {
  Verified();
  Hear(Abort{2, "why"});
  EXPECT_EQ(Last<AbandonEpoch>()->reason, "why");
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kContinue);
  EXPECT_EQ(member.epoch(), 1u);
}

TEST_F(MemberTest, GivesUpOnlyBeforeVerified) {
  PrepareIt(TransitionKind::kBoundary, kNew);
  Pledge({kUpdateBoundary, 8, 8});
  Hear(Decide{2, 0, true});
  member.OnBoundary(now, {8, true, {}, {}, {}}, &out);
  Tick(seconds(31));
  EXPECT_FALSE(Sent<rewire::elastic::Verified>().value().ok);
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kContinue);
  Hear(Commit{Record(kNew)});  // impossible
  EXPECT_TRUE(Last<StopProcess>().has_value());
}

TEST_F(MemberTest, WaitsForDecisionAfterVerified) {
  Verified();
  member.OnDisconnected(now, &out);
  Tick(MemberOptions{}.undecided - seconds(1));
  EXPECT_FALSE(Last<Resume>().has_value());
  EXPECT_FALSE(Last<StopProcess>().has_value());
  Tick(seconds(2));
  EXPECT_THAT(Last<StopProcess>()->reason,
              HasSubstr("did not answer in time whether the new world was committed"));
}

TEST_F(MemberTest, LearnsOfCommitAfterReconnect) {
  Verified();
  member.OnDisconnected(now, &out);
  out.clear();
  member.OnConnected(now, &out);
  EXPECT_EQ(Sent<Hello>().value().epoch, 1u);
  Hear(Welcome{kNew, false, {{9}}});
  EXPECT_FALSE(Last<Resume>().has_value());
  Hear(Commit{Record(kNew)});
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kWorldChanged);
}

TEST_F(MemberTest, LearnsOfAbortAfterReconnect) {
  Verified();
  member.OnDisconnected(now, &out);
  member.OnConnected(now, &out);
  Hear(Welcome{kOld, false, {{9}}});
  Hear(Commit{Record(kOld)});
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kContinue);
  EXPECT_EQ(Last<AbandonEpoch>()->epoch, 2u);
}

TEST_F(MemberTest, UnsentVerifiedDoesNotBind) {
  PrepareIt(TransitionKind::kBoundary, kNew);
  Pledge({kUpdateBoundary, 8, 8});
  Hear(Decide{2, 0, true});
  member.OnBoundary(now, {8, true, {}, {}, {}}, &out);
  member.OnDisconnected(now, &out);
  member.OnStreamed(now, 2, absl::OkStatus(), 1, 1, &out);
  Tick(seconds(31));
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kContinue);
}

TEST_F(MemberTest, RestoresAfterLoss) {
  Verified();
  Hear(Lost{1, {0}});
  EXPECT_THAT(Last<AbortCurrent>()->reason, HasSubstr("member 0"));
  EXPECT_EQ(Last<AbortCurrent>()->living, kOld.members.size() - 1);
  EXPECT_FALSE(Last<Resume>().has_value());  // there is no old world to continue in
  Hear(Prepare{3, TransitionKind::kLoss, kOld, {3, kAlone.members}, {{5}}, 1000, {}});
  EXPECT_TRUE(Last<DescribeBoundary>().has_value());
  out.clear();
  member.OnBoundary(now, {8, false, {7}, {7}, {}}, &out);
  EXPECT_FALSE(Sent<AtBoundary>().value().live_whole);
  Hear(Restore{3, 7, {}});
  EXPECT_EQ(Last<RestoreFrom>()->version, 7u);
  member.OnStreamed(now, 3, absl::OkStatus(), 1, 1, &out);
  Hear(Commit{Record({3, kAlone.members})});
  EXPECT_EQ(Last<Resume>()->kind, ResumeKind::kRepeat);
}

// An unmodified program may go on with communicators of the survivors.
TEST_F(MemberTest, AbortsAgainWhenAnotherMemberIsLost) {
  Hear(Lost{1, {0}});
  out.clear();
  Hear(Lost{1, {0}});  // again, after the leader restarted
  EXPECT_FALSE(Last<AbortCurrent>().has_value());
  Hear(Lost{1, {0, 1}});
  EXPECT_THAT(Last<AbortCurrent>()->reason, HasSubstr("member 1"));
  EXPECT_THAT(Last<AbortCurrent>()->reason, Not(HasSubstr("member 0")));
}

TEST_F(MemberTest, StopsWhenNoLeaderAnswersAfterLoss) {
  Hear(Lost{1, {0}});
  member.OnBoundary(now, {}, &out);
  Tick(MemberOptions{}.recover - seconds(1));
  EXPECT_FALSE(Last<StopProcess>().has_value());
  Tick(seconds(2));
  EXPECT_THAT(Last<StopProcess>()->reason, HasSubstr("no new world"));
}

TEST_F(MemberTest, StallMovesItsDeadlines) {
  Hear(Lost{1, {0}});
  member.OnBoundary(now, {}, &out);
  Stall(seconds(3600));
  Tick(MemberOptions{}.recover - seconds(20));
  Stall(seconds(3600));
  EXPECT_FALSE(Last<StopProcess>().has_value());
  Tick(seconds(30));
  EXPECT_THAT(Last<StopProcess>()->reason, HasSubstr("no new world"));
}

TEST_F(MemberTest, StallDoesNotMoveDeadlineOfBuild) {
  Stall(seconds(3600));
  Hear(Prepare{2, TransitionKind::kSwap, kOld, kOld, {{5}}, 1000, {}});
  Hear(Build{2, {}});
  EXPECT_EQ(Last<BuildGenerations>()->deadline, now + seconds(1));
}

TEST_F(MemberTest, DropsAndCountsMessagesOfOtherEpochs) {
  PrepareIt(TransitionKind::kBoundary, kNew);
  const size_t before = out.size();
  Hear(Build{9, {}});
  Hear(Propose{1, 0, {{kUpdateBoundary, 8, 8}}});
  Hear(Decide{3, 0, true});
  Hear(Restore{3, 1, {}});
  Hear(Abort{1, ""});
  Hear(Lost{7, {0}});
  Hear(Prepare{2, TransitionKind::kSwap, kOld, kOld, {{5}}, 1000, {}});
  Hear(Heartbeat{1, {}});
  member.OnBuilt(now, 7, absl::OkStatus(), {}, &out);
  member.OnStreamed(now, 3, absl::OkStatus(), 1, 1, &out);
  EXPECT_EQ(out.size(), before);
  EXPECT_EQ(member.dropped_messages(), 10u);
}

TEST_F(MemberTest, ReportsWhyItCannotPrepare) {
  Hear(Prepare{2, TransitionKind::kBoundary, kOld, kNew, {{5}}, 1000, {}});
  Hear(Build{2, {}});
  member.OnBuilt(now, 2, absl::ResourceExhaustedError("no memory"), {}, &out);
  EXPECT_EQ(Sent<Prepared>().value().error, "no memory");
  EXPECT_FALSE(Sent<Prepared>().value().again);
  member.OnBuilt(now, 2, absl::InternalError("ncclResult 6"), {}, &out);
  EXPECT_TRUE(Sent<Prepared>().value().again);
  Hear(Prepare{3, TransitionKind::kBoundary, kNew, kNew, {{5}}, 1000, {}});
  EXPECT_THAT(Sent<Prepared>().value().error, HasSubstr("it is in epoch 1, not 2"));
  member.OnMinted(now, 2, kComm, {}, absl::InternalError("x"), &out);  // late: of an earlier epoch
  EXPECT_EQ(Sent<Prepared>().value().epoch, 3u);
}

TEST_F(MemberTest, SendsReclaimNoticeAfterConnect) {
  member.OnDisconnected(now, &out);
  member.OnReclaim(now, seconds(120), &out);
  EXPECT_FALSE(Sent<ReclaimNotice>().has_value());
  member.OnConnected(now, &out);
  Hear(Welcome{kOld, false, {{9}}});
  EXPECT_EQ(Sent<ReclaimNotice>().value().within_ms, 120000u);
}

TEST_F(MemberTest, StopsWhenRefusedStoppedOrMissing) {
  Hear(Commit{Record({7, kOld.members})});
  EXPECT_THAT(Last<StopProcess>()->reason, HasSubstr("without this member"));
  const size_t before = out.size();
  Hear(Refused{"again"});  // nothing follows
  EXPECT_EQ(out.size(), before);
}

TEST_F(MemberTest, JoinerReportsBoundaryAndStreamsWhenArmed) {
  MemberOptions o = Options();
  o.member = 2;
  Member joiner(o);
  const auto hear = [&](const Message& m) { joiner.OnMessage(now, m, &out); };
  joiner.OnConnected(now, &out);
  hear(Welcome{kNew, true, {{9}}});
  EXPECT_TRUE(Last<EnterWorld>()->joining);
  hear(Prepare{2, TransitionKind::kBoundary, kOld, kNew, {{5}}, 1000, {}});
  hear(Build{2, {}});
  joiner.OnBuilt(now, 2, absl::OkStatus(), {}, &out);
  joiner.OnPlanned(now, 2, uint64_t{77}, &out);
  EXPECT_FALSE(Sent<AtBoundary>().has_value());
  joiner.OnBoundary(now, {}, &out);
  EXPECT_TRUE(Sent<AtBoundary>().has_value());
  EXPECT_FALSE(Last<FinishStream>().has_value());
  hear(Decide{2, 0, true});
  EXPECT_TRUE(Last<FinishStream>().has_value());
  hear(Stop{"not needed"});
  EXPECT_EQ(Last<StopProcess>()->reason, "not needed");
}

TEST_F(MemberTest, ReportsPinsOfKnownCommunicatorsWhenTheyChange) {
  member.OnCommunicatorPinned(now, kComm, "a graph", &out);
  EXPECT_EQ(Sent<CommunicatorPinned>()->reason, "a graph");
  const size_t before = out.size();
  member.OnCommunicatorPinned(now, kComm, "a graph", &out);
  member.OnCommunicatorPinned(now, CommunicatorId{9, 9}, "unknown here", &out);
  EXPECT_EQ(out.size(), before);
  // The next agent learns of the pin with the communicator.
  member.OnConnected(now, &out);
  EXPECT_TRUE(Sent<CommunicatorCreated>()->pinned);
  EXPECT_EQ(Sent<CommunicatorCreated>()->reason, "a graph");
  member.OnCommunicatorPinned(now, kComm, "", &out);
  EXPECT_EQ(Sent<CommunicatorPinned>()->reason, "");
}

TEST_F(MemberTest, ReportsFinishedOnce) {
  member.OnFinished(now, &out);
  EXPECT_TRUE(Sent<Finished>().has_value());
  const size_t before = out.size();
  member.OnFinished(now, &out);
  Tick(seconds(10));
  EXPECT_EQ(out.size(), before);
}

}  // namespace
}  // namespace rewire::elastic
