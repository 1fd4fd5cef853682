#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "shim/core/thread_priority.h"
#include "shim/core/warm_up.h"
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;

class BuildTest : public Stage {
 protected:
  std::vector<std::string> Calls() {
    MutexLock lock(&FakeNccl::Get().mutex);
    return FakeNccl::Get().calls;
  }
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

TEST_F(BuildTest, TheDeadlineInterruptsABuildWhosePeerNeverComes) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_blocks = true;
  const absl::Status status = Prepare(1, {BuildOf(program, 2, 0)}, seconds(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
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

TEST_F(BuildTest, ABuildThatUsesHalfOfItsTimeHasTheProgramsPriority) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl& nccl = FakeNccl::Get();
  nccl.init_blocks = true;
  Answer<absl::Status> built;
  core_->Build(1, {BuildOf(program, 2, 0)}, Now() + seconds(6), built.Callback());
  ASSERT_TRUE(Eventually([&] { return Inside() == 1; }));
  const int program_niceness = OwnNiceness();
  EXPECT_TRUE(Eventually([&] { return NicenessOfBuildThread() == program_niceness; }));
  core_->Abandon(1);
  EXPECT_TRUE(built.Wait().has_value());
}

TEST_F(BuildTest, ABuildWaitsWhileFourThreadsReturnFromNccl) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl& nccl = FakeNccl::Get();
  nccl.init_blocks = nccl.abort_ignored = true;
  for (Epoch epoch = 1; epoch <= 4; ++epoch) {
    EXPECT_EQ(GiveUpInside(epoch, {BuildOf(program, 2, 0)}).code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(Prepare(5, {BuildOf(program, 2, 0)}, milliseconds(20)).code(),
            absl::StatusCode::kCancelled);
  Answer<absl::Status> built;
  core_->Build(6, {BuildOf(program, 2, 0)}, Now() + seconds(100), built.Callback());
  nccl.Release();
  EXPECT_EQ(built.Wait(), absl::OkStatus());
}

// A library for which it is unknown when ncclCommAbort frees.
class UnknownNcclTest : public BuildTest {
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

TEST_F(BuildTest, ABlockedSimulationIsInterruptedToo) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().simulation_blocks = true;
  EXPECT_FALSE(GiveUpInside(1, {BuildOf(program, 2, 0, std::string("\0\7\4", 3))}).ok());
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  EXPECT_THAT(Calls().back(), "end");
}

TEST_F(BuildTest, WhatWasBuiltBeforeABlockedOneIsAbortedWithIt) {
  Program a(core_.get(), 1);
  Program b(core_.get(), 2);
  ASSERT_EQ(a.Create(2, 0), ncclSuccess);
  ASSERT_EQ(b.Create(2, 0), ncclSuccess);
  FakeNccl::Get().simulation_blocks = true;
  EXPECT_FALSE(
      GiveUpInside(1, {BuildOf(a, 2, 0), BuildOf(b, 2, 0, std::string("\0\7\4", 3))}).ok());
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 2; }));
}

TEST_F(BuildTest, AFailedInitialisationIsAborted) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_result = ncclSystemError;
  EXPECT_FALSE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(BuildTest, TheDeadlineAbortsANonBlockingOneToo) {
  Program program(core_.get(), 1, false);
  FakeNccl::Get().polls = 1 << 30;
  ASSERT_EQ(program.Create(2, 0), ncclInProgress);
  const absl::Status status = Prepare(1, {BuildOf(program, 2, 0)}, milliseconds(50));
  EXPECT_THAT(status.ToString(), HasSubstr("REWIRE_BUILD_MS"));
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(BuildTest, AbandonEndsABuildUnderWay) {
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

TEST_F(BuildTest, AbandonDropsWhatIsBuilt) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  EXPECT_EQ(FakeNccl::Get().Live(), 2);
  core_->Abandon(1);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  EXPECT_FALSE(Pledged(1, {{program.comm.id, 10, 20}}));
}

TEST_F(BuildTest, DestroyingACommunicatorEndsItsBuild) {
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

TEST_F(BuildTest, ADestructionIsReportedBeforeTheBuildThatItStops) {
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

TEST_F(BuildTest, OneFailureDropsTheWholeEpoch) {
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

TEST_F(BuildTest, EachFailureNamesItsCause) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_result = ncclSystemError;
  EXPECT_THAT(Prepare(1, {BuildOf(program, 4, 3)}).ToString(),
              HasSubstr("as rank 3 of 4: ncclResult=2"));
  FakeNccl::Get().init_result = ncclSuccess;
  FakeServices::SetReplayResult(ncclInternalError);
  EXPECT_THAT(Prepare(2, {BuildOf(program, 2, 0)}).ToString(), HasSubstr("replay"));
  FakeServices::SetReplayResult(ncclSuccess);
  FakeNccl::Get().simulate_result = ncclInternalError;
  EXPECT_THAT(Prepare(3, {BuildOf(program, 2, 0, std::string("\0\7\4", 3))}).ToString(),
              HasSubstr("warm-up"));
  EXPECT_THAT(Prepare(4, {BuildOf(program, 2, 0, "\1")}).ToString(), HasSubstr("usage"));
  EXPECT_THAT(Prepare(5, {{CommunicatorId{7, 7}, 2, 0, std::string(128, 'u')}}).ToString(),
              HasSubstr("does not exist"));
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(BuildTest, PinnedCommunicatorsAreRefusedWithTheReason) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  AddPin(&program.comm, Pin::kGraph);
  EXPECT_THAT(Prepare(1, {BuildOf(program, 2, 0)}).ToString(), HasSubstr("CUDA graph"));
  EXPECT_TRUE(core_->List().at(0).pinned);
  EXPECT_THAT(core_->List().at(0).reason, HasSubstr("CUDA graph"));
}

TEST_F(BuildTest, MemoryThatDoesNotFitIsRefusedWithTheFigures) {
  Program program(core_.get(), 1);
  device_.SetFreeBytes(1000);
  // The first generation takes 600.
  program.comm.current.store(FakeServices::Get()->new_generation(0, 2, 0));
  ncclResult_t result = ncclSuccess;
  ASSERT_EQ(core_->OnCreated(&program.comm, &result), 0);
  device_.SetFreeBytes(400);
  core_->OnOpened(&program.comm);
  const std::string text = Prepare(1, {BuildOf(program, 2, 0)}).ToString();
  EXPECT_THAT(text, HasSubstr("bytes=600"));
  EXPECT_THAT(text, HasSubstr("400 free bytes"));
  EXPECT_EQ(FakeNccl::Get().Live(), 0);
  program.Close();
}

// The program's first communicator took 1000 bytes, most of them once for all communicators. The
// others were not measured, as after ncclCommSplit(). Each generation takes 400.
class MeasureTest : public BuildTest {
 protected:
  absl::Status Rebuild(int64_t free_bytes) {
    device_.SetFreeBytes(5000);
    MakeFirst(&world_);
    device_.SetFreeBytes(4000);
    core_->OnOpened(&world_.comm);
    MakeFirst(&left_);
    MakeFirst(&right_);
    device_.SetFreeBytes(
        [free_bytes] { return static_cast<uint64_t>(free_bytes - 400 * FakeNccl::Get().Live()); });
    return Prepare(1, {BuildOf(world_, 2, 0), BuildOf(left_, 2, 0), BuildOf(right_, 2, 0)});
  }
  void TearDown() override {
    for (Program* p : {&world_, &left_, &right_}) p->Close();
    BuildTest::TearDown();
  }

 private:
  void MakeFirst(Program* program) {
    program->comm.current.store(FakeServices::Get()->new_generation(0, 2, 0));
    ncclResult_t result = ncclSuccess;
    ASSERT_EQ(core_->OnCreated(&program->comm, &result), 0);
  }

  Program world_{core_.get(), 1}, left_{core_.get(), 2}, right_{core_.get(), 3};
};

TEST_F(MeasureTest, TheFirstCommunicatorSaysNothingAboutOthers) {
  EXPECT_EQ(Rebuild(1200), absl::OkStatus());
}

TEST_F(MeasureTest, TheBuildStopsWhereTheRestDoesNotFit) {
  const std::string text = Rebuild(1199).ToString();
  EXPECT_THAT(text, HasSubstr("device memory: bytes=400"));
  EXPECT_THAT(text, HasSubstr("399 free bytes"));
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
}

TEST_F(BuildTest, WarmsUpWhatTheMinterHasUsed) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  program.comm.seen[static_cast<unsigned>(Collective::kAllReduce)][ncclFloat32].store(1 << 10);
  program.comm.seen[static_cast<unsigned>(Collective::kBroadcast)][ncclInt8].store(1 << 3);
  program.comm.seen[static_cast<unsigned>(Collective::kSend)][ncclInt8].store(1 << 3);
  const absl::StatusOr<elastic::UniqueIdBytes> id = core_->Mint(program.comm.id);
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(Prepare(1, {{program.comm.id, 2, 0, *id}}).ok());
  MutexLock lock(&FakeNccl::Get().mutex);
  EXPECT_THAT(FakeNccl::Get().simulated,
              ElementsAre("AllReduce 1024 of type 7", "Broadcast 8 of type 0"));
}

// The warm-up operation of a new generation, run during its build.
class BesideTest : public BuildTest {
 protected:
  BesideTest() { device_.SetResidentBlocks(132); }
  // The warm-up operation may take this time while the program issues nothing.
  void StartStalled(milliseconds stalled) {
    Start({.build = seconds(20),
           .decision = seconds(1),
           .retire = milliseconds(0),
           .stalled = stalled});
  }
  static std::string Minted(ShimCommunicators* core, const Program& program) {
    return core->Mint(program.comm.id)->substr(NCCL_UNIQUE_ID_BYTES);
  }
};

TEST_F(BesideTest, TheMinterAsksForItWhereTheBlocksOfAllFit) {
  Program a(core_.get(), 1);
  ASSERT_EQ(a.Create(2, 0), ncclSuccess);
  EXPECT_EQ(Minted(core_.get(), a), kBeside);
  device_.SetResidentBlocks(64);
  EXPECT_EQ(Minted(core_.get(), a), kBeside);
  Program b(core_.get(), 2);
  ASSERT_EQ(b.Create(2, 0), ncclSuccess);
  EXPECT_EQ(Minted(core_.get(), a), "");
  device_.SetResidentBlocks(0);
  EXPECT_EQ(Minted(core_.get(), a), "");
}

TEST_F(BesideTest, NothingIsLeftToDoAtTheWarmIndex) {
  for (const bool blocking : {true, false}) {
    Program program(core_.get(), blocking ? 1 : 2, blocking);
    ASSERT_EQ(program.Create(2, 0), blocking ? ncclSuccess : ncclInProgress);
    ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}).ok());
    EXPECT_EQ(device_.live_streams(), 0);
    ASSERT_TRUE(Pledged(1, {{program.comm.id, 3, 5}}));
    core_->Decide(1, true);
    for (size_t i = 0; i < 8; ++i) ASSERT_EQ(program.Issue(100 + i), ncclSuccess);
    EXPECT_EQ(HostWaits(program, 1), 0u);
    EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(1, 105, 106, 107));
  }
  EXPECT_EQ(core_->counters().warmed_beside.load(), 2u);
  EXPECT_EQ(core_->counters().host_waits.load(), 0u);
}

TEST_F(BesideTest, IsDisabledAfterBlockingTheProgram) {
  StartStalled(milliseconds(30));
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  device_.SetPending(true);
  const std::string text = Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}).ToString();
  EXPECT_THAT(text, HasSubstr("not complete while"));
  // The abort lets the old generation continue.
  EXPECT_THAT(Calls(), ElementsAre("init 1", "init 2", "group", "abort 2", "end"));
  EXPECT_EQ(device_.live_streams(), 0);
  EXPECT_EQ(Minted(core_.get(), program), "");
  EXPECT_EQ(core_->counters().beside_refused.load(), 1u);
  device_.SetPending(false);
  EXPECT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
}

TEST_F(BesideTest, WhileTheProgramAdvancesOnlyTheDeadlineEndsIt) {
  StartStalled(milliseconds(1));
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  device_.SetPending(true);  // the program has issued nothing, so none of its work can be stuck
  EXPECT_THAT(
      Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}, milliseconds(50)).ToString(),
      HasSubstr("REWIRE_BUILD_MS"));
  EXPECT_EQ(core_->counters().beside_refused.load(), 0u);
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(BesideTest, AfterALossTheProgramThatStandsStillDoesNotEndIt) {
  StartStalled(milliseconds(1));
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  core_->AbortCurrent("member 7 was lost");
  device_.SetPending(true);  // an overloaded host
  EXPECT_THAT(
      Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}, milliseconds(50)).ToString(),
      HasSubstr("REWIRE_BUILD_MS"));
  EXPECT_EQ(core_->counters().beside_refused.load(), 0u);
}

TEST_F(BesideTest, ReportsNcclsError) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().operation_result = ncclInternalError;
  EXPECT_THAT(Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}).ToString(),
              AllOf(HasSubstr("first operation on a new generation"), HasSubstr("ncclResult=3")));
  EXPECT_EQ(device_.live_streams(), 0);
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(BuildTest, MintForNoCommunicatorIsThePlainId) {
  EXPECT_EQ(core_->Mint(kUpdateBoundary)->size(), 128u);
}

TEST_F(BuildTest, AJoinersFirstGenerationComesWithTheBuild) {
  {
    MutexLock lock(&events_.mutex);
    events_.joining = true;
  }
  Program program(core_.get(), 1);
  Answer<absl::Status> built;
  // The build may come first.
  core_->Build(4, {BuildOf(program, 3, 2)}, Now() + seconds(20), built.Callback());
  ASSERT_EQ(program.Create(3, 2), ncclSuccess);
  ASSERT_TRUE(built.Wait()->ok());
  EXPECT_THAT(Calls(), ElementsAre("init 1"));
  EXPECT_NE(program.Real(), nullptr);
  EXPECT_EQ(program.Issue(0), ncclInvalidUsage);
  core_->SwapNow(4);
  EXPECT_EQ(program.Issue(0), ncclSuccess);
}

TEST_F(BuildTest, AJoinerWaitsAgainAfterAnAbandonedEpoch) {
  {
    MutexLock lock(&events_.mutex);
    events_.joining = true;
  }
  Program program(core_.get(), 1);
  std::thread application([&] { EXPECT_EQ(program.Create(3, 2), ncclSuccess); });
  ASSERT_TRUE(Prepare(4, {BuildOf(program, 3, 2)}).ok());
  application.join();
  core_->Abandon(4);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  EXPECT_EQ(program.Issue(0), ncclInvalidUsage);
  ASSERT_TRUE(Prepare(5, {BuildOf(program, 3, 2)}).ok());
  core_->SwapNow(5);
  EXPECT_EQ(program.Issue(0), ncclSuccess);
}

TEST_F(BuildTest, AJoinerThatNobodyBuildsForGetsAnErrorInTime) {
  Start({.build = milliseconds(30), .decision = seconds(1), .retire = milliseconds(0)});
  {
    MutexLock lock(&events_.mutex);
    events_.joining = true;
  }
  Program blocking(core_.get(), 1);
  EXPECT_EQ(blocking.Create(3, 2), ncclRemoteError);
  Program polling(core_.get(), 2, false);
  EXPECT_EQ(polling.Create(3, 2), ncclInProgress);
}

TEST_F(BuildTest, AJoinerThatIsStoppedDoesNotWaitForItsBuild) {
  {
    MutexLock lock(&events_.mutex);
    events_.joining = true;
  }
  Program waiting(core_.get(), 1);
  Program polling(core_.get(), 2, false);
  EXPECT_EQ(polling.Create(3, 2), ncclInProgress);
  std::thread application([&] { EXPECT_EQ(waiting.Create(3, 2), ncclRemoteError); });
  ASSERT_TRUE(Eventually([&] {
    MutexLock lock(&events_.mutex);
    return events_.created.size() == 2;
  }));
  {
    MutexLock lock(&events_.mutex);
    events_.stopped = true;
  }
  core_->AbortCurrent("out of the job");
  application.join();
  // The error names either cause: the thread may not have begun to wait.
  EXPECT_THAT(core_->OnLastError(&waiting.comm),
              AnyOf(StrEq("out of the job"), StrEq("this process is not part of the job")));
  EXPECT_STREQ(core_->OnLastError(&polling.comm), "out of the job");
  // A communicator made afterwards fails in the same way.
  Program late(core_.get(), 3);
  EXPECT_EQ(late.Create(3, 2), ncclRemoteError);
}

TEST(UsageTest, EveryBadListIsRefused) {
  EXPECT_TRUE(DecodeUsage("")->empty());
  EXPECT_FALSE(DecodeUsage("ab").ok());
  EXPECT_FALSE(DecodeUsage(std::string("\x9\7\4", 3)).ok());
  EXPECT_FALSE(DecodeUsage(std::string("\0\x10\4", 3)).ok());
  EXPECT_FALSE(DecodeUsage(std::string("\0\7\x29", 3)).ok());
  const std::vector<UsageClass> usage = {{Collective::kReduceScatter, 9, 40}};
  EXPECT_EQ(*DecodeUsage(EncodeUsage(usage)), usage);
}

}  // namespace
}  // namespace rewire::shim
