// The entries of transitions, and their traces.
#include "reconfig/control/agent/transition_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reconfig/control/agent/job_json.h"

namespace rewire::control {
namespace {

class TransitionLogTest : public ::testing::Test {
 protected:
  Time At(int ms) { return Time{} + seconds(100) + milliseconds(ms); }
  elastic::Note Progress(uint64_t number, elastic::Phase phase,
                         elastic::NoteKind kind = elastic::NoteKind::kProgress) {
    elastic::Note n;
    n.transition = number;
    n.epoch = 8;
    n.transition_kind = elastic::TransitionKind::kBoundary;
    n.phase = phase;
    n.kind = kind;
    n.text = "text";
    return n;
  }
  // Feeds a whole transition of member 3, from 0 ms to 69 ms.
  void Whole() {
    log_.OnNote(At(0), Progress(1, elastic::Phase::kPrepare), 7);
    elastic::Prepare prepare;
    prepare.epoch = 8;
    prepare.from.members = {{3, 1, ""}};
    prepare.to.members = {{3, 1, ""}, {4, 1, ""}};
    log_.OnSent(At(1), 3, prepare);
    log_.OnSent(At(2), 3, elastic::Build{8, {}});
    log_.OnSent(At(2), 3, elastic::Propose{8, elastic::kLookRound, {}});
    log_.OnReceived(At(10), 3, elastic::Prepared{8, true, "", 0, {}});
    log_.OnNote(At(10), Progress(1, elastic::Phase::kPropose), 7);
    log_.OnSent(At(11), 3, elastic::Propose{8, 1, {}});
    log_.OnReceived(At(12), 3, elastic::Pledge{8, 1, true, {}, "", {}});
    log_.OnSent(At(13), 3, elastic::Decide{8, 1, true});
    log_.OnReceived(At(20), 3, elastic::AtBoundary{8, 0, true, {}, {}, {}});
    log_.OnReceived(At(25), 3, elastic::Verified{8, true, "", 100, 40});
    elastic::Commit commit;
    commit.record.world.epoch = 8;
    commit.record.world.members = {{3, 1, ""}};
    log_.OnSent(At(30), 3, commit);
    log_.OnReceived(At(39), 3, elastic::Position{{1, 1}, true, 8, false, 2, {}, {7}});
    log_.OnReceived(At(40), 3, elastic::Entered{8, 5000000});
    log_.OnNote(At(41), Progress(1, elastic::Phase::kCommitted, elastic::NoteKind::kDone), 8);
    log_.OnNote(At(42), Progress(1, elastic::Phase::kRetiring), 8);
    log_.OnSent(At(43), 3, elastic::Retire{{{7, {1, 1}}}});
    log_.OnReceived(At(69), 3, elastic::Position{{1, 1}, true, 8, false, 2, {}, {}});
  }
  const TransitionSpan* Find(const TransitionEntry& e, const std::string& name) {
    for (const TransitionSpan& s : e.spans) {
      if (s.name == name) return &s;
    }
    return nullptr;
  }
  TransitionLog log_;
};

TEST_F(TransitionLogTest, RecordsSpansAndBytesOfWholeTransition) {
  EXPECT_EQ(log_.Find(std::nullopt), nullptr);
  Whole();
  // The requesting command has its answer, so the next command may already ask for the transition.
  ASSERT_NE(log_.Find(std::nullopt), nullptr);
  EXPECT_EQ(log_.Find(std::nullopt)->to, 8u);
  ASSERT_NE(log_.current(), nullptr);
  log_.OnIdle(At(70));
  EXPECT_EQ(log_.current(), nullptr);
  const std::vector<TransitionEntry> ended = log_.TakeEnded();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(log_.TakeEnded().empty());
  const TransitionEntry& e = ended[0];
  EXPECT_TRUE(e.committed);
  EXPECT_EQ(e.from, 7u);
  EXPECT_EQ(e.to, 8u);
  const struct {
    const char* name;
    int begin;
    int end;
  } spans[] = {{"prepare", 1, 10}, {"build", 2, 10},  {"pledge", 11, 12},  {"to boundary", 13, 20},
               {"stream", 20, 25}, {"enter", 30, 40}, {"pause", 35, 40},   {"retire", 43, 69},
               {"PREPARE", 0, 10}, {"READY", 10, 42}, {"RETIRING", 42, 70}};
  for (const auto& want : spans) {
    const TransitionSpan* s = Find(e, want.name);
    ASSERT_NE(s, nullptr) << want.name;
    EXPECT_EQ(s->begin, At(want.begin)) << want.name;
    EXPECT_EQ(s->end, At(want.end)) << want.name;
  }
  const nlohmann::json status = TransitionStatus(e, At(500));
  EXPECT_EQ(status["result"], "committed");
  EXPECT_EQ(status["prepare_ms"], 10.0);
  EXPECT_EQ(status["total_ms"], 41.0);
  EXPECT_EQ(status["bytes"], 100);
  EXPECT_EQ(status["host_waits"], 2);
  EXPECT_EQ(status["pause_ms_max"], 5.0);
  EXPECT_TRUE(status["waiting_for"].empty());
}

TEST_F(TransitionLogTest, NamesMembersWithOpenSpans) {
  log_.OnNote(At(0), Progress(1, elastic::Phase::kPrepare), 7);
  elastic::Prepare prepare;
  prepare.epoch = 8;
  log_.OnSent(At(1), 3, prepare);
  log_.OnSent(At(1), 5, prepare);
  log_.OnReceived(At(2), 3, elastic::Prepared{8, true, "", 0, {}});
  const auto waiting = log_.current()->WaitingFor();
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting.at(5), "prepare");
}

TEST_F(TransitionLogTest, IgnoresMessagesOfAnotherEpoch) {
  log_.OnNote(At(0), Progress(1, elastic::Phase::kPrepare), 7);
  elastic::Prepare prepare;
  prepare.epoch = 6;
  log_.OnSent(At(1), 3, prepare);
  log_.OnReceived(At(2), 3, elastic::Verified{6, true, "", 100, 100});
  log_.OnReceived(At(2), 3, elastic::Heartbeat{});
  EXPECT_TRUE(log_.current()->parts.empty());
  EXPECT_TRUE(log_.current()->WaitingFor().empty());
}

TEST_F(TransitionLogTest, KeepsReasonOfAbortedTransitionAndRecordsNext) {
  log_.OnNote(At(0), Progress(1, elastic::Phase::kPrepare), 7);
  elastic::Note failed = Progress(1, elastic::Phase::kPrepare, elastic::NoteKind::kFailed);
  failed.text = "no room";
  log_.OnNote(At(5), failed, 7);
  log_.OnNote(At(6), Progress(1, elastic::Phase::kPrepare), 7);  // a late note on it
  log_.OnNote(At(7), Progress(2, elastic::Phase::kPrepare), 7);
  ASSERT_EQ(log_.entries().size(), 2u);
  EXPECT_EQ(log_.entries()[0].result, "no room");
  const nlohmann::json status = TransitionStatus(log_.entries()[0], At(9));
  EXPECT_EQ(status["result"], "aborted");
  EXPECT_EQ(status["reason"], "no room");
  // The third transition begins without a note about the end of the second.
  log_.OnNote(At(8), Progress(3, elastic::Phase::kPrepare), 7);
  EXPECT_EQ(log_.TakeEnded().size(), 2u);
}

TEST_F(TransitionLogTest, KeepsReasonOfRestart) {
  log_.OnNote(At(0), Progress(1, elastic::Phase::kPrepare), 7);
  elastic::Note restart = Progress(1, elastic::Phase::kPrepare);
  restart.text = "preparation restarts: member 2 created communicator 1";
  log_.OnNote(At(1), restart, 7);
  log_.OnNote(At(2), Progress(2, elastic::Phase::kPrepare), 7);
  const std::vector<TransitionEntry> ended = log_.TakeEnded();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_FALSE(ended[0].committed);
  EXPECT_EQ(ended[0].result, restart.text);
}

TEST_F(TransitionLogTest, KeepsOnlyLastTransitions) {
  for (uint64_t i = 1; i <= 40; ++i) {
    elastic::Note n = Progress(i, elastic::Phase::kPrepare);
    n.epoch = i;
    log_.OnNote(At(static_cast<int>(i)), n, i - 1);
    log_.OnIdle(At(static_cast<int>(i)));
  }
  EXPECT_EQ(log_.entries().size(), TransitionLog::kKept);
  EXPECT_EQ(log_.Find(std::nullopt)->to, 40u);
  EXPECT_EQ(log_.Find(Epoch{30})->to, 30u);
  EXPECT_EQ(log_.Find(Epoch{10}), nullptr);
  EXPECT_EQ(log_.TakeEnded().size(), 40u);
}

TEST_F(TransitionLogTest, TraceHasOneTrackPerMember) {
  Whole();
  log_.OnIdle(At(70));
  const nlohmann::json trace = nlohmann::json::parse(TraceJson(log_.entries()[0], "job", At(99)));
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] == "X") by_name[e["name"]] = e;
  }
  EXPECT_EQ(by_name["prepare"]["tid"], 4);
  EXPECT_EQ(by_name["prepare"]["ts"], 1000.0);
  EXPECT_EQ(by_name["prepare"]["dur"], 9000.0);
  EXPECT_EQ(by_name["PREPARE"]["tid"], 0);
  EXPECT_EQ(by_name["boundary 7→8"]["dur"], 70000.0);
  EXPECT_EQ(trace["otherData"]["result"], "committed");
}

}  // namespace
}  // namespace rewire::control
