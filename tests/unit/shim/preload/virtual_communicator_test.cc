// Making and ending communicators: handles, recipes, identities, calls to the core.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <set>

#include "reconfig/world/identity.h"
#include "tests/unit/shim/preload/shim_fixture.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class VirtualCommunicatorTest : public ShimTest {};

TEST_F(VirtualCommunicatorTest, HasItsOwnHandleAndTheIdentityOfItsUniqueId) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommInitRank(&comm, 4, id, 2));
  EXPECT_EQ(Magic::kOpen, V(comm)->magic);
  EXPECT_EQ(IdentityOfUniqueId(&id), V(comm)->id());
  EXPECT_EQ(1u, V(comm)->recipe.ids.size());
  EXPECT_TRUE(V(comm)->recipe.blocking);
  EXPECT_EQ(nullptr, V(comm)->recipe.Config());
  EXPECT_EQ(ncclSuccess, ncclCommDestroy(comm));
}

TEST_F(VirtualCommunicatorTest, CopiesTheConfigWithItsTexts) {
  std::string name = "interface0";
  // A config of a later release: 16 bytes more than ours.
  struct {
    ncclConfig_t base = NCCL_CONFIG_INITIALIZER;
    unsigned char more[16] = {9, 8, 7};
  } config;
  config.base.size = sizeof config;
  config.base.blocking = 0;
  config.base.netName = name.c_str();
  const ncclComm_t comm = Make(2, 0, &config.base);
  name = "overwritten";
  const ncclConfig_t* kept = V(comm)->recipe.Config();
  ASSERT_NE(nullptr, kept);
  EXPECT_EQ(sizeof config, kept->size);
  EXPECT_STREQ("interface0", kept->netName);
  EXPECT_EQ(9, reinterpret_cast<const unsigned char*>(kept)[sizeof(ncclConfig_t)]);
  EXPECT_FALSE(V(comm)->recipe.blocking);
  // A child without a config inherits its parent's, with its own copies of the strings.
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommSplit(comm, 1, 0, &child, nullptr));
  EXPECT_STREQ("interface0", V(child)->recipe.Config()->netName);
  EXPECT_NE(kept->netName, V(child)->recipe.Config()->netName);
  EXPECT_FALSE(V(child)->recipe.blocking);
  ncclCommDestroy(child);
  ncclCommDestroy(comm);
}

TEST_F(VirtualCommunicatorTest, AShortConfigIsNotReadBeyondItsEnd) {
  // The struct of a release in which it ended after `blocking`.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, cgaClusterSize);
  config.netName = reinterpret_cast<const char*>(uintptr_t{0xdead});
  const ncclComm_t comm = Make(2, 0, &config);
  EXPECT_EQ(config.size, V(comm)->recipe.config.size());
  ncclCommDestroy(comm);
}

TEST_F(VirtualCommunicatorTest, ReportsTheMemoryOfACreation) {
  UseCore();
  free_memory = 1000;
  NoopNccl()->on_call = [](const char* name) {
    const std::string_view called = name;
    if (called == "CommInitRankConfig") free_memory -= 100;
    if (called == "CommSplit") free_memory -= 50;
  };
  const ncclComm_t comm = Make();
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommSplit(comm, 1, 0, &child, nullptr));
  EXPECT_THAT(notes, ElementsAre("created", "took 100 at 0", "created", "took 50 at 0"));
  ncclCommAbort(child);
  ncclCommAbort(comm);
}

TEST_F(VirtualCommunicatorTest, ReportsCreationAndEndToTheCoreInOrder) {
  UseCore();
  const ncclComm_t comm = Make();
  EXPECT_THAT(notes, ElementsAre("created"));
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommSplit(comm, 1, 0, &child, nullptr));
  EXPECT_THAT(notes, ElementsAre("created", "created"));
  EXPECT_EQ(2, V(child)->current.load()->ranks);
  notes.clear();
  ncclCommFinalize(child);
  ncclCommDestroy(child);
  ncclCommAbort(comm);
  EXPECT_THAT(notes, ElementsAre("closing 0", "closing 1"));
}

TEST_F(VirtualCommunicatorTest, LastErrorComesFromTheCore) {
  UseCore();
  const ncclComm_t comm = Make();
  const std::string nccl_says = ncclGetLastError(comm);
  last_error = "member 7 was lost";
  EXPECT_STREQ("member 7 was lost", ncclGetLastError(comm));
  EXPECT_EQ(nccl_says, ncclGetLastError(nullptr));
  last_error = nullptr;
  EXPECT_EQ(nccl_says, ncclGetLastError(comm));
  ncclCommDestroy(comm);
}

TEST_F(VirtualCommunicatorTest, CoreMakesTheFirstGeneration) {
  UseCore();
  created_gives = 1;
  on_created = [](VirtualCommunicator* comm) {
    Generation* next = NewGeneration(4, 2, 0);
    pncclCommInitRank(&next->real, 2, ncclUniqueId{}, 0);
    FreeGeneration(Publish(comm, next));
  };
  const int alive = NoopNccl()->alive;
  const ncclComm_t comm = Make();
  EXPECT_EQ(alive + 1, NoopNccl()->alive);  // the shim made no second real communicator
  EXPECT_EQ(4u, V(comm)->current.load()->epoch);
  EXPECT_EQ(ncclSuccess, AllReduce(comm));
  ncclCommDestroy(comm);
}

TEST_F(VirtualCommunicatorTest, FailedCreationLeavesNoHandle) {
  UseCore();
  NoopNccl()->result = ncclSystemError;
  ncclComm_t comm = reinterpret_cast<ncclComm_t>(this);
  EXPECT_EQ(ncclSystemError, ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0));
  EXPECT_EQ(nullptr, comm);
  EXPECT_THAT(notes, ElementsAre("created", "closing 1"));
  Sweep();
  EXPECT_EQ(0, Waiting());
}

TEST_F(VirtualCommunicatorTest, PassesInvalidRankToNccl) {
  UseCore();
  NoopNccl()->result = ncclInvalidArgument;
  for (const auto& [ranks, rank] : {std::pair{2, 2}, {2, 5}, {2, -1}, {0, 0}, {-3, -4}}) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, ranks, ncclUniqueId{}, rank), ncclInvalidArgument);
    Sweep();
    EXPECT_EQ(Waiting(), 0);
  }
  EXPECT_TRUE(notes.empty());
}

TEST_F(VirtualCommunicatorTest, SplitsAreCountedOnEveryRank) {
  const ncclComm_t comm = Make();
  ncclComm_t none = comm;
  ASSERT_EQ(ncclSuccess, ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, nullptr));
  EXPECT_EQ(nullptr, none);
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommSplit(comm, 7, 0, &child, nullptr));
  EXPECT_EQ(IdentityOfChild(V(comm)->id(), 1, 7), V(child)->id());
  int gone[1] = {0};
  ncclComm_t shrunk = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommShrink(comm, gone, 1, &shrunk, nullptr, NCCL_SHRINK_DEFAULT));
  EXPECT_EQ(IdentityOfShrunk(V(comm)->id(), 0, gone), V(shrunk)->id());
  // The excluded ranks have not called, so their next split gets the same identity.
  EXPECT_EQ(2u, V(comm)->children);
  ncclComm_t grown = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommGrow(comm, 3, nullptr, -1, &grown, nullptr));
  EXPECT_EQ(static_cast<uint32_t>(Pin::kGrown), V(grown)->pins);
  for (const ncclComm_t c : {child, shrunk, grown, comm}) ncclCommDestroy(c);
}

// The core changes the identity at an update boundary (Chain::TakeIdentity).
TEST_F(VirtualCommunicatorTest, ChildrenAreNamedByThePresentIdentity) {
  static constexpr CommunicatorId kNext{4, 7};
  const ncclComm_t comm = Make();
  V(comm)->present_id = &kNext;
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommSplit(comm, 7, 0, &child, nullptr));
  EXPECT_EQ(IdentityOfChild(kNext, 0, 7), V(child)->id());
  int gone[1] = {0};
  ncclComm_t shrunk = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommShrink(comm, gone, 1, &shrunk, nullptr, NCCL_SHRINK_DEFAULT));
  EXPECT_EQ(IdentityOfShrunk(kNext, 0, gone), V(shrunk)->id());
  for (const ncclComm_t c : {child, shrunk, comm}) ncclCommDestroy(c);
  // The pool uses the memory of a handle again after other handles.
  ncclComm_t later = nullptr;
  for (int i = 0; i < 1000 && later != comm; ++i) {
    later = Make();
    EXPECT_NE(V(later)->id(), kNext);
    ncclCommDestroy(later);
  }
  EXPECT_EQ(later, comm);
}

// The core reports the pins with the creation: the ranks have different identities of it, so the
// agent must not wait for ranks that never report the same one.
TEST_F(VirtualCommunicatorTest, GrownCommunicatorsAreReportedAsPinned) {
  UseCore();
  std::vector<uint32_t> pins;
  on_created = [&](VirtualCommunicator* comm) { pins.push_back(comm->pins); };
  const ncclComm_t small = Make();
  const ncclUniqueId id{};
  ncclComm_t grown = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommGrow(small, 3, &id, -1, &grown, nullptr));
  ncclComm_t joined = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommGrow(nullptr, 3, &id, 2, &joined, nullptr));
  constexpr auto kGrown = static_cast<uint32_t>(Pin::kGrown);
  EXPECT_THAT(pins, ElementsAre(0, kGrown, kGrown));
  on_created = nullptr;
  for (const ncclComm_t c : {joined, grown, small}) ncclCommDestroy(c);
}

TEST_F(VirtualCommunicatorTest, ChildIsInProgressUntilNcclHasMadeIt) {
  UseCore();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclComm_t comm = Make(2, 0, &config);
  notes.clear();
  NoopNccl()->late_children = true;
  NoopNccl()->result = ncclInProgress;
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclInProgress, ncclCommSplit(comm, 1, 0, &child, nullptr));
  NoopNccl()->result = ncclSuccess;
  ASSERT_NE(nullptr, child);  // PyTorch treats any pointer as a communicator
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(ncclSuccess, ncclCommGetAsyncError(child, &error));
  EXPECT_EQ(ncclInProgress, error);
  EXPECT_THAT(notes, IsEmpty());
  NoopNccl()->async_error = ncclSystemError;
  ncclCommGetAsyncError(child, &error);
  EXPECT_EQ(ncclSystemError, error);  // the parent's error
  NoopNccl()->async_error = ncclSuccess;
  NoopStoreChild();
  EXPECT_EQ(ncclSuccess, ncclCommGetAsyncError(child, &error));
  EXPECT_EQ(ncclSuccess, error);
  EXPECT_THAT(notes, ElementsAre("created"));
  int count = 0;
  EXPECT_EQ(ncclSuccess, ncclCommCount(child, &count));
  EXPECT_EQ(2, count);
  ncclCommAbort(child);
  ncclCommAbort(comm);
}

// LeakSanitizer checks that the generation is not lost.
TEST_F(VirtualCommunicatorTest, ChildMayBeAbortedBeforeNcclHasMadeIt) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclComm_t comm = Make(2, 0, &config);
  NoopNccl()->late_children = true;
  NoopNccl()->result = ncclInProgress;
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclInProgress, ncclCommSplit(comm, 1, 0, &child, nullptr));
  NoopNccl()->result = ncclSuccess;
  EXPECT_EQ(ncclSuccess, ncclCommAbort(child));
  NoopStoreChild();  // NCCL stores the child into memory that still exists
  ncclCommAbort(comm);
}

TEST_F(VirtualCommunicatorTest, CreationInsideAGroupIsReportedAtTheGroupsEnd) {
  UseCore();
  ncclGroupStart();
  const ncclComm_t comm = Make();
  ncclComm_t child = nullptr;
  ncclCommSplit(comm, 0, 0, &child, nullptr);
  EXPECT_THAT(notes, ElementsAre("created"));
  ncclGroupEnd();
  EXPECT_THAT(notes, ElementsAre("created", "created"));
  ncclGroupStart();
  ncclCommAbort(child);
  ncclCommAbort(comm);
  ncclGroupEnd();
  EXPECT_EQ(Magic::kDestroyed, V(comm)->magic);
  EXPECT_EQ(0, Waiting());
}

TEST_F(VirtualCommunicatorTest, InitAllMakesOneCommunicatorOfSeveralRanks) {
  ncclComm_t comms[3];
  ASSERT_EQ(ncclSuccess, ncclCommInitAll(comms, 3, nullptr));
  for (int i = 0; i < 3; ++i) {
    int rank = -1;
    ncclCommUserRank(comms[i], &rank);
    EXPECT_EQ(i, rank);
    EXPECT_EQ(0u, V(comms[i])->pins);
    EXPECT_EQ(V(comms[0])->id(), V(comms[i])->id());
    EXPECT_EQ(ncclSuccess, AllReduce(comms[i]));
    EXPECT_EQ(1u, RealOf(comms[i])->operations);
  }
  for (const ncclComm_t c : comms) ncclCommDestroy(c);
}

TEST_F(VirtualCommunicatorTest, StaleHandlesAreRefused) {
  const ncclComm_t comm = Make();
  ASSERT_EQ(ncclSuccess, ncclCommDestroy(comm));
  const uint64_t calls = NoopNccl()->calls;
  int value = 0;
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(ncclInvalidArgument, AllReduce(comm));
  EXPECT_EQ(ncclInvalidArgument, ncclCommDestroy(comm));
  EXPECT_EQ(ncclInvalidArgument, ncclCommAbort(comm));
  EXPECT_EQ(ncclInvalidArgument, ncclCommCount(comm, &value));
  EXPECT_EQ(ncclInvalidArgument, ncclCommGetAsyncError(comm, &error));
  EXPECT_EQ(calls, NoopNccl()->calls);
  // The memory is not reused at once for the next communicators.
  for (int i = 0; i < 32; ++i) {
    const ncclComm_t next = Make();
    EXPECT_NE(comm, next);
    ncclCommDestroy(next);
  }
}

TEST_F(VirtualCommunicatorTest, MemoryOfDestroyedCommunicatorsIsReused) {
  std::set<ncclComm_t> handles;
  for (int i = 0; i < 1000; ++i) {
    const ncclComm_t comm = Make();
    EXPECT_EQ(0u, V(comm)->issued);
    AllReduce(comm);
    handles.insert(comm);
    ncclCommDestroy(comm);
  }
  EXPECT_LT(handles.size(), 200u);
  EXPECT_EQ(0, Waiting());
}

TEST_F(VirtualCommunicatorTest, AFailedDestroyCanStillBeAborted) {
  const ncclComm_t comm = Make();
  NoopNccl()->result = ncclInvalidUsage;
  EXPECT_EQ(ncclInvalidUsage, ncclCommDestroy(comm));
  NoopNccl()->result = ncclSuccess;
  EXPECT_EQ(ncclSuccess, AllReduce(comm));
  EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
}

TEST_F(VirtualCommunicatorTest, AnAbortedGenerationIsNotAbortedAgain) {
  const ncclComm_t comm = Make();
  V(comm)->current.load()->state = GenerationState::kAborted;
  NoopNccl()->on_call = [](const char* name) { EXPECT_STRNE("CommAbort", name); };
  EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
  NoopNccl()->on_call = nullptr;
}

TEST_F(VirtualCommunicatorTest, AForkedChildIsRefusedAndDoesNotCrash) {
  const ncclComm_t comm = Make();
  ncclGroupStart();
  AllReduce(comm);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int value = 0;
    ncclResult_t error = ncclSuccess;
    const bool refused =
        AllReduce(comm) == ncclInvalidUsage && ncclCommCount(comm, &value) == ncclInvalidUsage &&
        ncclCommGetAsyncError(comm, &error) == ncclInvalidUsage &&
        ncclCommAbort(comm) == ncclInvalidUsage && ncclCommDestroy(comm) == ncclInvalidUsage;
    ncclComm_t own = nullptr;
    const bool works = ncclCommInitRank(&own, 1, ncclUniqueId{}, 0) == ncclSuccess &&
                       AllReduce(own) == ncclSuccess && V(own)->issued == 1 &&
                       ncclCommDestroy(own) == ncclSuccess && Waiting() == 0;
    _exit(refused && works ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  ncclGroupEnd();
  EXPECT_EQ(1u, V(comm)->issued);
  ncclCommDestroy(comm);
}

TEST(IdentityTest, DiffersByEachInput) {
  ncclUniqueId one{};
  ncclUniqueId two{};
  two.internal[127] = 1;
  EXPECT_EQ(IdentityOfUniqueId(&one), IdentityOfUniqueId(&one));
  EXPECT_NE(IdentityOfUniqueId(&one), IdentityOfUniqueId(&two));
  EXPECT_NE(IdentityOfUniqueId(&one), kUpdateBoundary);
  const CommunicatorId parent = IdentityOfUniqueId(&two);
  EXPECT_NE(IdentityOfChild(parent, 0, 0), IdentityOfChild(parent, 1, 0));
  EXPECT_NE(IdentityOfChild(parent, 0, 0), IdentityOfChild(parent, 0, 1));
  EXPECT_NE(IdentityOfChild(parent, 0, 0), parent);
  const int first[] = {0};
  const int second[] = {1};
  EXPECT_NE(IdentityOfShrunk(parent, 0, first), IdentityOfShrunk(parent, 0, second));
  EXPECT_NE(IdentityOfShrunk(parent, 0, first), IdentityOfShrunk(parent, 1, first));
}

}  // namespace
}  // namespace rewire::shim
