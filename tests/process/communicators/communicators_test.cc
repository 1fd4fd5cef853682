// Rebuilds of programs with all kinds of communicators: over part of the members, idle, with sends
// and receives alone, non-blocking, and several ranks in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "reconfig/base/clock.h"
#include "tests/fakes/process/background.h"
#include "tests/fakes/process/sim_libraries.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

size_t Times(const std::string& text, const std::string& what) {
  size_t times = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

class CommunicatorsTest : public ::testing::Test {
 protected:
  void Start(int ranks, const std::string& mode) {
    ranks_ = static_cast<size_t>(ranks);
    job_.emplace(std::vector<std::string>{
        REWIRE_COMMAND, "run", "-n", std::to_string(ranks), "--sim=" + SimLibraries(REWIRE_SIMGPU),
        "--dir", folder_ / "run", "--socket", Socket(), "--", PROGRAM, folder_ / "", mode});
    Await("ready\n", seconds(60));
  }
  std::string Socket() const { return folder_ / "agent.sock"; }
  // Waits until every rank has printed a line with this text.
  void Await(const std::string& text, Duration within = seconds(30)) {
    const bool said = job_->ReadUntil(
        [&](const CommandResult& r) { return Times(r.out, text) >= ranks_; }, within);
    if (said) return;
    const CommandResult end = job_->End(seconds(1));
    FAIL() << "not all said " << text << "\n" << end.out << end.err;
  }
  void Touch(const std::string& name) { std::ofstream(folder_ / name) << "now"; }
  CommandResult Ask(const std::string& command, std::vector<std::string> more = {}) {
    std::vector<std::string> all = {command, "--socket", Socket()};
    all.insert(all.end(), more.begin(), more.end());
    return Rewire(all, seconds(60));
  }
  nlohmann::json Status() {
    const CommandResult r = Ask("status", {"--json"});
    return nlohmann::json::parse(r.out, nullptr, false);
  }
  // Returns the number of pending swaps whose reason has this text.
  size_t Pending(const std::string& why) {
    size_t count = 0;
    const nlohmann::json status = Status();  // must outlive the loop over a part of it
    for (const auto& p : status["pending"]) {
      count += p["why"].get<std::string>().find(why) != std::string::npos ? 1 : 0;
    }
    return count;
  }
  // Communicators in use pass their cuts within moments; the others stay pending.
  void AwaitPending(const std::string& why, size_t count) {
    const Time until = Now() + seconds(30);
    while (Pending(why) != count && Now() < until) {
    }
    EXPECT_EQ(Pending(why), count) << why << "\n" << Ask("status").out;
  }
  void AwaitPinned(size_t count) {
    const Time until = Now() + seconds(30);
    while (Status()["pinned"].size() != count && Now() < until) {
    }
    EXPECT_EQ(Status()["pinned"].size(), count) << Ask("status").out;
  }
  void Rebuild(int epoch) {
    const CommandResult r = Ask("rebuild");
    ASSERT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_EQ(Status()["epoch"], epoch);
  }
  void Finish() {
    Touch("stop");
    const CommandResult end = job_->End(seconds(60));
    EXPECT_EQ(end.status, 0) << end.out << end.err;
    EXPECT_EQ(Times(end.out, " done\n"), ranks_);
    EXPECT_EQ(Times(end.out, "failed"), 0u) << end.out;
  }

  TemporaryFolder folder_;
  std::optional<Background> job_;
  size_t ranks_ = 0;
};

TEST_F(CommunicatorsTest, AnIdleCommunicatorIsUsedAgainAfterThreeRebuilds) {
  Start(4, "all");
  for (int epoch = 2; epoch <= 4; ++epoch) Rebuild(epoch);
  // Neither communicator has reached a cut: the status has the reasons, also as text.
  AwaitPending("idle", 4);
  AwaitPending("point-to-point", 4);
  EXPECT_THAT(Ask("status").out, HasSubstr("idle: it switches at its next operation"));
  Touch("use-1");
  Await("used it 1\n");
  for (int epoch = 5; epoch <= 7; ++epoch) Rebuild(epoch);
  Touch("use-2");
  Await("used it 2\n");
  Rebuild(8);
  Finish();
}

TEST_F(CommunicatorsTest, AnAgentThatRestartsLearnsOfPendingSwapsFromTheMembers) {
  Start(2, "blocking");
  Rebuild(2);
  AwaitPending("idle", 2);
  const nlohmann::json before = Status();
  kill(before["agent"]["pid"].get<int>(), SIGKILL);
  // The next agent answers, and all members have reported to it.
  const Time until = Now() + seconds(30);
  nlohmann::json after;
  do {
    after = Status();
  } while (Now() < until &&
           (!after.is_object() || after["agent"]["pid"] == before["agent"]["pid"] ||
            after["phase"] != "STEADY" || after["pending"].size() < 4));
  AwaitPending("idle", 2);
  AwaitPending("point-to-point", 2);
  Rebuild(3);
  AwaitPending("idle", 2);
  Touch("use-1");
  Await("used it 1\n");
  Finish();
}

TEST_F(CommunicatorsTest, ACapturedCommunicatorIsPinnedUntilItsGraphsAreReleased) {
  if (SimLibraries(REWIRE_SIMGPU) != REWIRE_SIMGPU) {
    GTEST_SKIP() << "the simulated driver makes no graph of NCCL's launches";
  }
  Start(2, "graphs");
  Rebuild(2);
  for (int round = 0; round < 2; ++round) {
    Touch("use-" + std::to_string(2 * round + 1));
    Await("used it " + std::to_string(2 * round + 1) + "\n");
    AwaitPinned(2);
    EXPECT_THAT(Ask("status").out, HasSubstr("captured into a CUDA graph"));
    const CommandResult refused = Ask("rebuild");
    EXPECT_NE(refused.status, 0);
    EXPECT_THAT(refused.err, HasSubstr("is pinned on member"));
    Touch("use-" + std::to_string(2 * round + 2));
    Await("used it " + std::to_string(2 * round + 2) + "\n");
    AwaitPinned(0);
    Rebuild(3 + round);
  }
  Finish();
}

TEST_F(CommunicatorsTest, APendingSwapPassesAtACapturedOperation) {
  if (SimLibraries(REWIRE_SIMGPU) != REWIRE_SIMGPU) {
    GTEST_SKIP() << "the simulated driver makes no graph of NCCL's launches";
  }
  Start(2, "captures");
  Rebuild(2);
  AwaitPending("idle", 2);
  Touch("use-1");
  Await("used it 1\n");
  AwaitPending("idle", 0);
  AwaitPinned(2);
  Touch("use-2");
  Await("used it 2\n");
  Touch("use-3");
  Await("used it 3\n");
  AwaitPinned(0);
  Rebuild(3);
  Finish();
}

// An operation that NCCL rejected is in no graph.
TEST_F(CommunicatorsTest, ARejectedCapturedOperationDoesNotPin) {
  if (SimLibraries(REWIRE_SIMGPU) != REWIRE_SIMGPU) {
    GTEST_SKIP() << "the simulated driver makes no graph of NCCL's launches";
  }
  Start(2, "rejected");
  Touch("use-1");
  Await("used it 1\n");
  Rebuild(2);
  Finish();
}

TEST_F(CommunicatorsTest, SeveralRanksInOneProcessAreRefusedAtOnceByName) {
  Start(2, "threads");
  const CommandResult r = Ask("rebuild");
  EXPECT_NE(r.status, 0);
  EXPECT_THAT(r.err, HasSubstr("has several ranks in member"));
  EXPECT_EQ(Status()["epoch"], 1);
  Touch("stop");
  EXPECT_EQ(job_->End(seconds(60)).status, 0);
}

}  // namespace
}  // namespace rewire
