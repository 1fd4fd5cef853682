// The operations that a build runs on a new generation before the program does.
#include "shim/core/warm_up.h"

#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using WarmUpTest = Stage;
TEST_F(WarmUpTest, WarmsUpTheOperationsThatTheMinterHasUsed) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  program.comm.seen[static_cast<unsigned>(Collective::kAllReduce)][ncclFloat32].store(1 << 10);
  program.comm.seen[static_cast<unsigned>(Collective::kBroadcast)][ncclInt8].store(1 << 3);
  program.comm.seen[static_cast<unsigned>(Collective::kSend)][ncclInt8].store(1 << 3);
  const absl::StatusOr<elastic::UniqueIdBytes> id = core_->Mint(program.comm.id());
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(Prepare(1, {{program.comm.id(), 2, {0}, *id}}).ok());
  MutexLock lock(&FakeNccl::Get().mutex);
  EXPECT_THAT(
      FakeNccl::Get().simulated,
      ElementsAre("AllReduce 1 of type 7", "AllReduce 1024 of type 7", "Broadcast 8 of type 0"));
}

TEST_F(WarmUpTest, MintForNoCommunicatorIsThePlainId) {
  EXPECT_EQ(core_->Mint(kUpdateBoundary)->size(), 128u);
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

// The warm-up operation of a new generation, run during its build.
class BesideTest : public Stage {
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
    return core->Mint(program.comm.id())->substr(NCCL_UNIQUE_ID_BYTES);
  }
};

TEST_F(BesideTest, MinterAsksForItWhereTheBlocksOfAllFit) {
  Program a(core_.get(), 1);
  ASSERT_EQ(a.Create(2, 0), ncclSuccess);
  a.RecordSend();
  EXPECT_EQ(Minted(core_.get(), a), kBeside);
  device_.SetResidentBlocks(64);
  EXPECT_EQ(Minted(core_.get(), a), kBeside);
  Program b(core_.get(), 2);
  ASSERT_EQ(b.Create(2, 0), ncclSuccess);
  EXPECT_EQ(Minted(core_.get(), a), EncodeUsage({kTinyOperation}));
  device_.SetResidentBlocks(0);
  EXPECT_EQ(Minted(core_.get(), a), EncodeUsage({kTinyOperation}));
}

TEST_F(BesideTest, ALimitOfNcclsBlocksLeavesRoomForMoreCommunicators) {
  Program a(core_.get(), 1);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = 20;  // NCCL rounds up to 32
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&config);
  a.comm.recipe.config.assign(bytes, bytes + sizeof config);
  ASSERT_EQ(a.Create(2, 0), ncclSuccess);
  a.RecordSend();
  device_.SetResidentBlocks(40);
  const std::string refused = EncodeUsage({kTinyOperation});
  EXPECT_EQ(Minted(core_.get(), a), refused);
  setenv("NCCL_MAX_CTAS", "16", 1);
  EXPECT_EQ(Minted(core_.get(), a), kBeside);
  setenv("NCCL_MAX_CTAS", "64", 1);
  EXPECT_EQ(Minted(core_.get(), a), refused);
  setenv("NCCL_MAX_NCHANNELS", "8", 1);
  EXPECT_EQ(Minted(core_.get(), a), kBeside);
  setenv("NCCL_MIN_NCHANNELS", "32", 1);
  EXPECT_EQ(Minted(core_.get(), a), refused);
  for (const char* name : {"NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS"}) {
    unsetenv(name);
  }
  config.maxCTAs = 16;
  a.comm.recipe.config.assign(bytes, bytes + sizeof config);
  EXPECT_EQ(Minted(core_.get(), a), kBeside);
}

TEST_F(BesideTest, NothingIsLeftToDoAtTheWarmIndex) {
  for (const bool blocking : {true, false}) {
    Program program(core_.get(), blocking ? 1 : 2, blocking);
    ASSERT_EQ(program.Create(2, 0), blocking ? ncclSuccess : ncclInProgress);
    ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}).ok());
    EXPECT_EQ(device_.live_streams(), 0);
    ASSERT_TRUE(Pledged(1, {{program.comm.id(), 3, 5}}));
    core_->Decide(1, true);
    for (size_t i = 0; i < 8; ++i) ASSERT_EQ(program.Issue(100 + i), ncclSuccess);
    EXPECT_EQ(HostWaits(program, 1), 0u);
    EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(2, 105, 106, 107));
  }
  EXPECT_EQ(core_->counters().warmed_beside.load(), 2u);
  EXPECT_EQ(core_->counters().host_waits.load(), 0u);
}

// Its first operation connects, as it would have done without the swap.
TEST_F(BesideTest, ACommunicatorThatWasNeverUsedIsOnlyCreated) {
  for (const bool blocking : {true, false}) {
    Program program(core_.get(), blocking ? 1 : 2, blocking);
    ASSERT_EQ(program.Create(2, 0), blocking ? ncclSuccess : ncclInProgress);
    EXPECT_EQ(Minted(core_.get(), program), kUnused);
    ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0, std::string(kUnused))}).ok());
    ASSERT_TRUE(Pledged(1, {{program.comm.id(), 3, 5}}));
    core_->Decide(1, true);
    for (size_t i = 0; i < 8; ++i) ASSERT_EQ(program.Issue(100 + i), ncclSuccess);
    EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(105, 106, 107));
  }
  EXPECT_EQ(core_->counters().host_waits.load(), 0u);
  MutexLock lock(&FakeNccl::Get().mutex);
  EXPECT_THAT(FakeNccl::Get().simulated, ElementsAre());
}

TEST_F(BesideTest, ConnectsThePairsOverWhichAnyRankHasSent) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(3, 0), ncclSuccess);
  PeerCounters counters[3];
  counters[1].sent.store(1);
  program.comm.peer_count.store(3);
  program.comm.peers.store(counters);
  device_.AddToMemory({0, 0b100, 0b001});  // 1 to 2, and 2 to 0
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 3, 0, std::string(kBeside))}).ok());
  {
    MutexLock lock(&FakeNccl::Get().mutex);
    EXPECT_THAT(FakeNccl::Get().sends, ElementsAre("0 to 1", "2 to 0"));
  }
  program.comm.peers.store(nullptr);
}

TEST_F(BesideTest, NonBlockingRanksSettleAfterTheirSends) {
  FakeNccl::Get().operation_polls = 3;
  Program program(core_.get(), 1, false);
  ASSERT_EQ(program.Create(2, 0), ncclInProgress);
  device_.AddToMemory({0b10, 0});
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}).ok());
  MutexLock lock(&FakeNccl::Get().mutex);
  EXPECT_THAT(FakeNccl::Get().sends, ElementsAre("0 to 1"));
}

TEST_F(BesideTest, ARankWithTooManyPeersConnectsNone) {
  constexpr uint32_t kRanks = 72;
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(kRanks, 0), ncclSuccess);
  program.comm.seen[static_cast<unsigned>(Collective::kAlltoAll)][ncclInt8].store(1);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, kRanks, 0, std::string(kBeside))}).ok());
  MutexLock lock(&FakeNccl::Get().mutex);
  EXPECT_TRUE(FakeNccl::Get().sends.empty());
}

TEST_F(BesideTest, AFailedSendIsReported) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  device_.AddToMemory({0b10, 0});
  FakeNccl::Get().send_result = ncclSystemError;
  EXPECT_THAT(Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}).ToString(),
              HasSubstr("ncclResult=2"));
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
  EXPECT_EQ(device_.live_streams(), 0);
}

TEST_F(BesideTest, TheMemoryOfAGenerationEndsWithIt) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}).ok());
  core_->Abandon(1);
  EXPECT_TRUE(Eventually([&] { return device_.freed() == 1; }));
  Swap(program, 2, 0, 0);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(device_.freed(), 1);  // the program's own generation has none
  program.Close();
  EXPECT_TRUE(Eventually([&] { return device_.freed() == 2; }));
}

TEST_F(BesideTest, ACopyThatDoesNotReturnEndsAtTheDeadline) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  device_.HoldReads(true);
  const elastic::CommunicatorBuild build = BuildOf(program, 2, 0, std::string(kBeside));
  EXPECT_THAT(Prepare(1, {build}, milliseconds(50)).ToString(), HasSubstr("REWIRE_BUILD_MS"));
  device_.HoldReads(false);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  EXPECT_TRUE(Prepare(2, {build}).ok());
}

TEST_F(BesideTest, WithoutDeviceMemoryNothingIsLeftOver) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  const int events = device_.live_events();
  const int generations = FakeServices::live_generations();
  device_.SetFull(true);
  EXPECT_THAT(Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}).ToString(),
              HasSubstr("no device memory: bytes="));
  EXPECT_EQ(device_.live_events(), events);
  EXPECT_EQ(FakeServices::live_generations(), generations);
  device_.SetFull(false);
  EXPECT_TRUE(Prepare(2, {BuildOf(program, 2, 0, std::string(kBeside))}).ok());
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
  program.RecordSend();
  EXPECT_EQ(Minted(core_.get(), program), EncodeUsage({kTinyOperation}));
  EXPECT_EQ(core_->counters().beside_refused.load(), 1u);
  device_.SetPending(false);
  EXPECT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
}

// NCCL's background thread uses the stream until the abort.
TEST_F(BesideTest, TheStreamOfALaunchUnderWayOutlivesTheGeneration) {
  Program program(core_.get(), 1, false);
  ASSERT_EQ(program.Create(2, 0), ncclInProgress);
  FakeNccl::Get().operation_polls = 1 << 30;
  std::vector<std::string> before;
  device_.OnDestroyStream([&before] { before = Calls(); });
  EXPECT_FALSE(Prepare(1, {BuildOf(program, 2, 0, std::string(kBeside))}, milliseconds(50)).ok());
  EXPECT_TRUE(Eventually([&] { return device_.live_streams() == 0; }));
  EXPECT_THAT(before, ElementsAre("init 1", "init 2", "group", "abort 2", "end"));
}

TEST_F(BesideTest, IsDisabledTooWhereAnotherMemberGivesUpFirst) {
  StartStalled(milliseconds(100));
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  device_.SetPending(true);
  Answer<absl::Status> built;
  core_->Build(1, {BuildOf(program, 2, 0, std::string(kBeside))}, Now() + seconds(100),
               built.Callback());
  // A poll counts for 1 to 10 ms. On a busy host this member may give up first.
  ASSERT_TRUE(Eventually(
      [&] { return device_.queries() > 60 || core_->counters().beside_refused.load() > 0; }));
  core_->Abandon(1);
  EXPECT_FALSE(built.Wait()->ok());
  EXPECT_EQ(core_->counters().beside_refused.load(), 1u);
  program.RecordSend();
  EXPECT_EQ(Minted(core_.get(), program), EncodeUsage({kTinyOperation}));
}

TEST_F(BesideTest, ABuildThatIsCalledOffAtOnceDisablesNothing) {
  StartStalled(seconds(1000));
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  device_.SetPending(true);
  Answer<absl::Status> built;
  core_->Build(1, {BuildOf(program, 2, 0, std::string(kBeside))}, Now() + seconds(100),
               built.Callback());
  ASSERT_TRUE(Eventually([&] { return device_.queries() > 1; }));
  core_->Abandon(1);
  EXPECT_FALSE(built.Wait()->ok());
  EXPECT_EQ(core_->counters().beside_refused.load(), 0u);
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

}  // namespace
}  // namespace rewire::shim
