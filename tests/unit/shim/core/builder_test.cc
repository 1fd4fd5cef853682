// Builds that succeed, fail, are cancelled or come too late, on a fake NCCL.
#include <sys/resource.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>

#include "reconfig/base/unique_fd.h"
#include "shim/core/build_task.h"
#include "shim/core/build_thread.h"
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BuilderTest : public Stage {
 protected:
  // Cancels the epoch when its thread is inside NCCL.
  absl::Status GiveUpInside(Epoch epoch, const std::vector<elastic::CommunicatorBuild>& builds) {
    const int threads = Inside();
    Answer<absl::Status> built;
    core_->Build(epoch, builds, Now() + seconds(100), built.Callback());
    EXPECT_TRUE(Eventually([&] { return Inside() == threads + 1; }));
    core_->Abandon(epoch);
    return built.Wait().value_or(absl::DeadlineExceededError("no answer"));
  }

  static int Inside() {
    FakeNccl& nccl = FakeNccl::Get();
    MutexLock lock(&nccl.mutex);
    int inside = 0;
    for (const auto& [handle, comm] : nccl.comms) inside += comm->inside;
    return inside;
  }
  static int NicenessOfBuildThread() {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(thread.path() / "comm") >> std::ws, name);
      if (name == "rw-build") {
        return getpriority(PRIO_PROCESS, std::stoi(thread.path().filename()));
      }
    }
    return -100;
  }
};

// NCCL keeps sockets of builds that were given up.
TEST_F(BuilderTest, RefusesABuildWhenDescriptorsRunOut) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  std::deque<UniqueFd> files;
  while (files.size() < 64) files.emplace_back(dup(STDERR_FILENO));
  const auto build = [&](Epoch epoch, rlim_t descriptors) {
    rlimit before{};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit few = {descriptors, before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const absl::Status status = Prepare(epoch, {BuildOf(program, 2, 0)});
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    core_->Abandon(epoch);
    return status.ToString();
  };
  const auto highest = static_cast<rlim_t>(files.back().get());
  EXPECT_EQ(build(1, highest + 8), "OK");  // no build was given up yet
  FakeNccl::Get().init_blocks = true;
  EXPECT_FALSE(Prepare(2, {BuildOf(program, 2, 0)}, milliseconds(100)).ok());
  FakeNccl::Get().Release();
  std::vector<rlim_t> limits = {highest + 8};
#ifndef __SANITIZE_ADDRESS__  // its checks need a descriptor
  limits.insert(limits.end(), {highest + 1, rlim_t{8}});
#endif
  for (const rlim_t descriptors : limits) {
    EXPECT_THAT(build(3, descriptors), HasSubstr("build generations: descriptors: open="));
  }
  EXPECT_EQ(build(4, 4096), "OK");
}

TEST_F(BuilderTest, DeadlineInterruptsABuildWhosePeerNeverComes) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_blocks = true;
  const absl::Status status = Prepare(1, {BuildOf(program, 2, 0)}, seconds(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.ToString(), HasSubstr("REWIRE_BUILD_MS"));
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  // The end of the group frees the communicator, after the initialisation has returned.
  EXPECT_THAT(Calls(), ElementsAre("init 1", "init 2", "group", "abort 2", "end"));
  EXPECT_EQ(core_->counters().failed_builds.load(), 1u);
  EXPECT_TRUE(Eventually([&] { return device_.live_events() == 0; }));
  // The old generation continues to work, and the next build is not affected.
  EXPECT_EQ(program.Issue(0), ncclSuccess);
  FakeNccl::Get().Release();
  EXPECT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
}

// How long a build has the low priority.
class PriorityTest : public BuilderTest {
 protected:
  void SetUp() override {
    if (!MayRaisePriority()) GTEST_SKIP() << "no permission to raise a priority again";
    ASSERT_EQ(program_.Create(2, 0), ncclSuccess);
    FakeNccl::Get().init_blocks = true;
  }
  void TearDown() override {
    program_.Close();
    BuilderTest::TearDown();
  }
  // Begins a build that does not leave NCCL.
  void BuildWithin(Duration time) {
    core_->Build(1, {BuildOf(program_, 2, 0)}, Now() + time, built_.Callback());
    ASSERT_TRUE(Eventually([&] { return Inside() == 1; }));
  }

  Program program_{core_.get(), 1};
  Answer<absl::Status> built_;
};

TEST_F(PriorityTest, IsLowUntilTheBuildIsStopped) {
  FakeNccl::Get().abort_ignored = true;
  const Time begun = Now();
  BuildWithin(seconds(100));
  const int niceness = NicenessOfBuildThread();
  if (Now() < begun + BuildTask::kYields) {  // otherwise the host was too busy
    EXPECT_EQ(niceness, 15);
  }
  core_->Abandon(1);
  EXPECT_TRUE(Eventually([&] { return NicenessOfBuildThread() == OwnNiceness(); }));
  EXPECT_TRUE(built_.Wait().has_value());
  FakeNccl::Get().Release();
}

TEST_F(PriorityTest, IsTheProgramsWhenHalfOfTheTimeIsUsed) {
  BuildWithin(seconds(6));
  EXPECT_TRUE(Eventually([&] { return NicenessOfBuildThread() == OwnNiceness(); }));
  core_->Abandon(1);
  EXPECT_TRUE(built_.Wait().has_value());
}

TEST_F(PriorityTest, IsTheProgramsAfterFiveSecondsOfALongTime) {
  const BuildTask task(1, {}, Now() + seconds(100), nullptr);
  EXPECT_LE(task.late_from, Now() + seconds(5));
}

TEST_F(PriorityTest, IsTheProgramsAfterALoss) {
  core_->AbortCurrent("member 1 died");
  BuildWithin(seconds(100));
  EXPECT_EQ(NicenessOfBuildThread(), OwnNiceness());
  core_->Abandon(1);
  EXPECT_TRUE(built_.Wait().has_value());
}

TEST_F(BuilderTest, WaitsWhileFourThreadsReturnFromNccl) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl& nccl = FakeNccl::Get();
  // A planned build would wait for the end of the aborts.
  core_->AbortCurrent("member 7 was lost");
  nccl.init_blocks = nccl.abort_ignored = true;
  for (Epoch epoch = 1; epoch <= 4; ++epoch) {
    EXPECT_EQ(GiveUpInside(epoch, {BuildOf(program, 2, 0)}).code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(Prepare(5, {BuildOf(program, 2, 0)}, milliseconds(20)).code(),
            absl::StatusCode::kDeadlineExceeded);
  Answer<absl::Status> built;
  core_->Build(6, {BuildOf(program, 2, 0)}, Now() + seconds(100), built.Callback());
  nccl.Release();
  EXPECT_EQ(built.Wait(), absl::OkStatus());
}

// A library for which it is unknown when ncclCommAbort frees.
class UnknownNcclTest : public BuilderTest {
 protected:
  UnknownNcclTest() { Start({}, /*abort_frees_at_group_end=*/false); }
};

TEST_F(UnknownNcclTest, DoesNotAbortDuringInitialisation) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_blocks = true;
  EXPECT_THAT(GiveUpInside(1, {BuildOf(program, 2, 0)}).ToString(),
              HasSubstr("epoch 1 was aborted"));
  EXPECT_THAT(Calls(), ElementsAre("init 1", "init 2"));
  // The next build does not need the previous build's thread.
  EXPECT_THAT(GiveUpInside(2, {BuildOf(program, 2, 0)}).ToString(),
              HasSubstr("epoch 2 was aborted"));
  EXPECT_EQ(FakeNccl::Get().Live(), 3);
  FakeNccl::Get().Release();
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  EXPECT_TRUE(Prepare(3, {BuildOf(program, 2, 0)}).ok());
}

TEST_F(UnknownNcclTest, RefusesABuildWhenFourThreadsAreInsideNccl) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_blocks = true;
  for (Epoch epoch = 1; epoch <= 4; ++epoch) {
    EXPECT_EQ(GiveUpInside(epoch, {BuildOf(program, 2, 0)}).code(), absl::StatusCode::kCancelled);
  }
  const absl::Status refused = Prepare(5, {BuildOf(program, 2, 0)});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.ToString(), HasSubstr("4 threads of cancelled builds"));
  FakeNccl::Get().Release();
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  EXPECT_TRUE(Eventually([&] { return Prepare(6, {BuildOf(program, 2, 0)}).ok(); }));
}

TEST_F(UnknownNcclTest, DestroyingACommunicatorDoesNotWaitForItsBuild) {
  Answer<absl::Status> built;
  {
    Program program(core_.get(), 1);
    ASSERT_EQ(program.Create(2, 0), ncclSuccess);
    FakeNccl::Get().init_blocks = true;
    core_->Build(1, {BuildOf(program, 2, 0)}, Now() + seconds(100), built.Callback());
    ASSERT_TRUE(Eventually([&] { return Calls().size() == 2; }));
    program.Close();
    EXPECT_THAT(built.Wait()->ToString(), HasSubstr("destroyed by the program"));
    EXPECT_EQ(FakeNccl::Get().Live(), 1);
  }
  // The thread inside NCCL may still pass the memory to a kernel.
  EXPECT_EQ(device_.freed(), 0);
  FakeNccl::Get().Release();
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
}

TEST_F(UnknownNcclTest, CoreMayEndWhileThreadIsInsideNccl) {
  FakeNccl& nccl = FakeNccl::Get();
  {
    Program program(core_.get(), 1);
    ASSERT_EQ(program.Create(2, 0), ncclSuccess);
    nccl.init_blocks = true;
    EXPECT_FALSE(GiveUpInside(1, {BuildOf(program, 2, 0)}).ok());
  }
  core_.reset();
  EXPECT_EQ(nccl.Live(), 1);
  nccl.Release();
  EXPECT_TRUE(Eventually([&] { return nccl.Live() == 0; }));
  Start({});
}

TEST_F(BuilderTest, InterruptsABlockedSimulation) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().simulation_blocks = true;
  EXPECT_FALSE(GiveUpInside(1, {BuildOf(program, 2, 0, std::string("\0\7\4", 3))}).ok());
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  EXPECT_THAT(Calls().back(), "end");
}

TEST_F(BuilderTest, AbortsEarlierGenerationsWithTheBlockedOne) {
  Program a(core_.get(), 1);
  Program b(core_.get(), 2);
  ASSERT_EQ(a.Create(2, 0), ncclSuccess);
  ASSERT_EQ(b.Create(2, 0), ncclSuccess);
  FakeNccl::Get().simulation_blocks = true;
  EXPECT_FALSE(
      GiveUpInside(1, {BuildOf(a, 2, 0), BuildOf(b, 2, 0, std::string("\0\7\4", 3))}).ok());
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 2; }));
}

TEST_F(BuilderTest, AbortsAFailedInitialisation) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_result = ncclSystemError;
  EXPECT_FALSE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(BuilderTest, DeadlineAbortsANonBlockingCommunicator) {
  Program program(core_.get(), 1, false);
  FakeNccl::Get().polls = 1 << 30;
  ASSERT_EQ(program.Create(2, 0), ncclInProgress);
  const absl::Status status = Prepare(1, {BuildOf(program, 2, 0)}, milliseconds(50));
  EXPECT_THAT(status.ToString(), HasSubstr("REWIRE_BUILD_MS"));
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(BuilderTest, AbandonEndsABuildUnderWay) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_blocks = true;
  Answer<absl::Status> built;
  core_->Build(1, {BuildOf(program, 2, 0)}, Now() + seconds(100), built.Callback());
  ASSERT_TRUE(Eventually([&] { return Calls().size() == 2; }));
  core_->Abandon(1);
  EXPECT_THAT(built.Wait()->ToString(), HasSubstr("epoch 1 was aborted"));
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
}

TEST_F(BuilderTest, AbandonDropsBuiltGenerations) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  EXPECT_EQ(FakeNccl::Get().Live(), 2);
  core_->Abandon(1);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  EXPECT_FALSE(Pledged(1, {{program.comm.id(), 10, 20}}));
}

TEST_F(BuilderTest, DestroyingACommunicatorEndsItsBuild) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_blocks = true;
  Answer<absl::Status> built;
  core_->Build(1, {BuildOf(program, 2, 0)}, Now() + seconds(100), built.Callback());
  ASSERT_TRUE(Eventually([&] { return Calls().size() == 2; }));
  program.Close();
  EXPECT_THAT(built.Wait()->ToString(), HasSubstr("destroyed by the program"));
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  MutexLock lock(&events_.mutex);
  EXPECT_THAT(events_.destroyed, ElementsAre(CommunicatorId{1, 1}));
}

TEST_F(BuilderTest, ADestructionIsReportedBeforeTheBuildThatItStops) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_blocks = true;
  Answer<bool> known;
  core_->Build(1, {BuildOf(program, 2, 0)}, Now() + seconds(100),
               [&, answer = known.Callback()](const absl::Status&) {
                 MutexLock lock(&events_.mutex);
                 answer(!events_.destroyed.empty());
               });
  ASSERT_TRUE(Eventually([&] { return Calls().size() == 2; }));
  program.Close();
  EXPECT_EQ(known.Wait(), true);
}

TEST_F(BuilderTest, OneFailureDropsTheWholeEpoch) {
  Program a(core_.get(), 1);
  Program b(core_.get(), 2);
  ASSERT_EQ(a.Create(2, 0), ncclSuccess);
  ASSERT_EQ(b.Create(2, 0), ncclSuccess);
  elastic::CommunicatorBuild bad = BuildOf(b, 2, 0);
  bad.unique_id.resize(100);
  const absl::Status status = Prepare(1, {BuildOf(a, 2, 0), bad});
  EXPECT_THAT(status.ToString(), HasSubstr("unique id: bytes=100: must be at least 128"));
  EXPECT_EQ(FakeNccl::Get().Live(), 2);
}

TEST_F(BuilderTest, EachFailureNamesItsCause) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_result = ncclSystemError;
  EXPECT_THAT(
      Prepare(1, {BuildOf(program, 4, 3)}).ToString(),
      HasSubstr("as rank 3 of 4: ncclResult=2, NCCL's last error: socket: Too many open files"));
  FakeNccl::Get().init_result = ncclSuccess;
  FakeServices::SetReplayResult(ncclInternalError);
  EXPECT_THAT(Prepare(2, {BuildOf(program, 2, 0)}).ToString(), HasSubstr("replay"));
  FakeServices::SetReplayResult(ncclSuccess);
  FakeNccl::Get().simulate_result = ncclInternalError;
  EXPECT_THAT(Prepare(3, {BuildOf(program, 2, 0, std::string("\0\7\4", 3))}).ToString(),
              HasSubstr("warm-up"));
  EXPECT_THAT(Prepare(4, {BuildOf(program, 2, 0, "\1")}).ToString(), HasSubstr("usage"));
  EXPECT_THAT(Prepare(5, {{CommunicatorId{7, 7}, 2, {0}, std::string(128, 'u')}}).ToString(),
              HasSubstr("does not exist"));
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(BuilderTest, PinnedCommunicatorsAreRefusedWithTheReason) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  AddPin(&program.comm, Pin::kGraph);
  EXPECT_THAT(Prepare(1, {BuildOf(program, 2, 0)}).ToString(), HasSubstr("CUDA graph"));
}

}  // namespace
}  // namespace rewire::shim
