// The operations that trigger before_cut and at_cut: the indices at the top of
// virtual_communicator.h.
#include <gmock/gmock.h>

#include "tests/unit/shim/preload/shim_fixture.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class IssueTest : public ShimTest {
 protected:
  IssueTest() {
    UseCore();
    comm_ = Make();
    notes.clear();
  }
  ~IssueTest() override {
    if (comm_ != nullptr) ncclCommAbort(comm_);
  }
  void Cut(uint64_t at) { EXPECT_LT(Services()->pledge(V(comm_), at), at); }
  // Returns the number of operations on the current real communicator.
  uint64_t OnCurrent() { return RealOf(comm_)->operations; }
  ncclComm_t comm_ = nullptr;
};

TEST_F(IssueTest, CallsTheCoreAfterTheLastOperationAndAtTheCut) {
  Cut(2);
  at_cut = [this](VirtualCommunicator* comm, CallSite) {
    comm->stop_at = kNoCut;
    Retire(Swap(comm_, 1));
    return ncclSuccess;
  };
  AllReduce(comm_, StreamNumber(1));  // index 0
  EXPECT_THAT(notes, IsEmpty());
  AllReduce(comm_, StreamNumber(2));  // index 1: the last before the cut
  EXPECT_THAT(notes, ElementsAre("before 2 depth 0 stream 2"));
  EXPECT_EQ(2u, OnCurrent());
  AllReduce(comm_, StreamNumber(3));  // index 2
  EXPECT_THAT(notes, ElementsAre("before 2 depth 0 stream 2", "at 2 depth 0"));
  EXPECT_EQ(1u, OnCurrent());
  AllReduce(comm_);
  EXPECT_EQ(2u, notes.size());
  EXPECT_EQ(4u, V(comm_)->issued);
}

TEST_F(IssueTest, ChecksSendAndReceiveButDoesNotCountThem) {
  Cut(1);
  EXPECT_EQ(ncclSuccess, ncclSend(nullptr, 1, ncclFloat, 0, comm_, nullptr));
  EXPECT_THAT(notes, IsEmpty());
  AllReduce(comm_);
  EXPECT_EQ(ncclSuccess, ncclRecv(nullptr, 1, ncclFloat, 0, comm_, nullptr));
  EXPECT_THAT(notes, ElementsAre("before 1 depth 0 stream 0", "at 1 depth 0"));
  EXPECT_EQ(1u, V(comm_)->issued);
  EXPECT_EQ(1u, V(comm_)->peers.load()[0].sent);
  EXPECT_EQ(1u, V(comm_)->peers.load()[0].received);
}

TEST_F(IssueTest, CallsBeforeCutAtTheEndOfAGroupThatReachesTheCut) {
  Cut(2);
  ncclGroupStart();
  AllReduce(comm_, StreamNumber(1));
  AllReduce(comm_, StreamNumber(2));
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_EQ(0u, V(comm_)->issued);  // counted when the group closes
  ncclGroupEnd();
  EXPECT_THAT(notes, ElementsAre("before 2 depth 0 stream 2"));
  AllReduce(comm_);
  EXPECT_THAT(notes, ElementsAre("before 2 depth 0 stream 2", "at 2 depth 0"));
}

TEST_F(IssueTest, HandlesAllCutsInsideAGroupBeforeTheNextOperation) {
  Cut(2);
  ncclGroupStart();
  ncclGroupStart();
  for (int i = 0; i < 5; ++i) AllReduce(comm_);
  ncclGroupEnd();
  EXPECT_THAT(notes, IsEmpty());
  AllReduce(comm_, StreamNumber(9));
  ncclGroupEnd();
  EXPECT_THAT(notes, ElementsAre("before 6 depth 0 stream 9"));
  EXPECT_EQ(6u, OnCurrent());
  // The group went past a warm index and the later cut: both are handled before the next operation.
  int cuts = 0;
  at_cut = [&](VirtualCommunicator* comm, CallSite) {
    comm->stop_at = ++cuts == 1 ? 4 : kNoCut;
    return ncclSuccess;
  };
  AllReduce(comm_);
  EXPECT_EQ(2, cuts);
}

TEST_F(IssueTest, CallsAtCutOnceForAGroupThatBeginsAtTheCut) {
  Cut(1);
  AllReduce(comm_);
  notes.clear();
  at_cut = [this](VirtualCommunicator* comm, CallSite) {
    comm->stop_at = kNoCut;
    Retire(Swap(comm_, 1));
    return ncclSuccess;
  };
  ncclGroupStart();
  EXPECT_THAT(notes, IsEmpty());
  AllReduce(comm_);
  AllReduce(comm_);
  ncclGroupEnd();
  EXPECT_THAT(notes, ElementsAre("at 1 depth 1"));
  EXPECT_EQ(2u, OnCurrent());
}

TEST_F(IssueTest, KeepsItsGenerationUntilTheGroupEnds) {
  ncclGroupStart();
  AllReduce(comm_);
  Generation* old = Swap(comm_, 1);
  AllReduce(comm_);
  EXPECT_FALSE(Services()->quiesce(old, 1));  // the group holds it
  EXPECT_EQ(0u, OnCurrent());
  EXPECT_EQ(2u, reinterpret_cast<NoopComm*>(old->Real())->operations);
  ncclGroupEnd();
  AllReduce(comm_);
  EXPECT_EQ(1u, OnCurrent());
  Retire(old);
}

TEST_F(IssueTest, CountsNothingAtGroupSimulateEnd) {
  Cut(1);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclGroupStart();
  AllReduce(comm_);
  EXPECT_EQ(ncclSuccess, ncclGroupSimulateEnd(&info));
  EXPECT_EQ(0u, V(comm_)->issued);
  EXPECT_THAT(notes, IsEmpty());
  AllReduce(comm_);  // and the depth is back at 0
  EXPECT_EQ(1u, V(comm_)->issued);
}

TEST_F(IssueTest, DoesNotCountOperationsThatNcclRefuses) {
  NoopNccl()->result = ncclInvalidArgument;
  EXPECT_EQ(ncclInvalidArgument, AllReduce(comm_));
  NoopNccl()->result = ncclInProgress;
  EXPECT_EQ(ncclInProgress, AllReduce(comm_));
  NoopNccl()->result = ncclSuccess;
  EXPECT_EQ(1u, V(comm_)->issued);
  ncclGroupStart();
  AllReduce(comm_);
  NoopNccl()->result = ncclInternalError;
  EXPECT_EQ(ncclInternalError, ncclGroupEnd());
  NoopNccl()->result = ncclSuccess;
  EXPECT_EQ(1u, V(comm_)->issued);
}

TEST_F(IssueTest, ReturnsTheCoresErrorAtTheCut) {
  Cut(1);
  AllReduce(comm_);
  at_cut = [](VirtualCommunicator*, CallSite) { return ncclRemoteError; };
  EXPECT_EQ(ncclRemoteError, AllReduce(comm_));
  EXPECT_EQ(1u, V(comm_)->issued);
  EXPECT_EQ(1u, OnCurrent());
  ncclGroupStart();
  EXPECT_EQ(ncclRemoteError, AllReduce(comm_));
  ncclGroupEnd();
  EXPECT_EQ(1u, OnCurrent());
}

TEST_F(IssueTest, RefusesCallsOnAbortedAndClosedGenerations) {
  V(comm_)->current.load()->state = GenerationState::kAborted;
  const uint64_t before = OnCurrent();
  EXPECT_EQ(ncclRemoteError, AllReduce(comm_));
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(ncclSuccess, ncclCommGetAsyncError(comm_, &error));
  EXPECT_EQ(ncclRemoteError, error);
  ncclGroupStart();
  EXPECT_EQ(ncclRemoteError, AllReduce(comm_));
  ncclGroupEnd();
  V(comm_)->current.load()->state = GenerationState::kClosed;
  EXPECT_EQ(ncclInvalidUsage, AllReduce(comm_));
  EXPECT_EQ(before, OnCurrent());
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclInvalidUsage, ncclCommSplit(comm_, 0, 0, &child, nullptr));
  Generation* old = Services()->publish(V(comm_), nullptr);
  EXPECT_EQ(ncclInvalidUsage, AllReduce(comm_));
  EXPECT_EQ(ncclSuccess, ncclCommGetAsyncError(comm_, &error));
  EXPECT_EQ(ncclInvalidUsage, error);
  Retire(old);
}

// NCCL returns this error because its communicator was aborted during the call.
TEST_F(IssueTest, ReturnsRemoteErrorWhenTheGenerationIsAbortedDuringTheCall) {
  static Generation* generation;
  generation = V(comm_)->current.load();
  NoopNccl()->on_call = [](const char*) { generation->state = GenerationState::kAborted; };
  NoopNccl()->result = ncclInternalError;
  EXPECT_EQ(ncclRemoteError, AllReduce(comm_));
  NoopNccl()->on_call = nullptr;
}

TEST_F(IssueTest, ReturnsRemoteErrorWhenTheGenerationIsAbortedDuringASplitOrQuery) {
  static Generation* generation;
  generation = V(comm_)->current.load();
  NoopNccl()->result = ncclInternalError;
  for (const bool takes_part : {true, false}) {
    generation->state = GenerationState::kOpen;
    NoopNccl()->on_call = [](const char*) { generation->state = GenerationState::kAborted; };
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclRemoteError,
              ncclCommSplit(comm_, takes_part ? 0 : NCCL_SPLIT_NOCOLOR, 0, &child, nullptr));
    EXPECT_EQ(child, nullptr);
  }
  generation->state = GenerationState::kOpen;
  ncclRedOp_t op = ncclSum;
  float scalar = 1;
  EXPECT_EQ(ncclRemoteError,
            ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comm_));
  NoopNccl()->on_call = nullptr;
}

TEST_F(IssueTest, ReturnsRemoteErrorWhenAGenerationIsAbortedDuringTheGroupsEnd) {
  static Generation* generation;
  generation = V(comm_)->current.load();
  ncclGroupStart();
  EXPECT_EQ(ncclSuccess, AllReduce(comm_));
  NoopNccl()->on_call = [](const char*) { generation->state = GenerationState::kAborted; };
  NoopNccl()->result = ncclInternalError;
  EXPECT_EQ(ncclRemoteError, ncclGroupEnd());
  NoopNccl()->on_call = nullptr;
}

TEST_F(IssueTest, RecordsTypesAndSizesInUse) {
  ncclAllReduce(nullptr, nullptr, 1024, ncclBfloat16, ncclSum, comm_, nullptr);
  ncclBcast(nullptr, 5, ncclInt8, 0, comm_, nullptr);
  const auto& seen = V(comm_)->seen;
  EXPECT_EQ(uint64_t{1} << 10, seen[static_cast<int>(Collective::kAllReduce)][ncclBfloat16].load());
  EXPECT_EQ(uint64_t{1} << 2, seen[static_cast<int>(Collective::kBroadcast)][ncclInt8].load());
}

// NCCL connects ranks for the first operation of a kind, a size class or a peer, and takes device
// memory for that.
class TakenMemoryTest : public IssueTest {
 protected:
  TakenMemoryTest() {
    free_memory = 1000;
    NoopNccl()->on_call = [](const char* name) {
      const std::string_view called = name;
      for (const std::string_view taking : {"AllReduce", "Send", "GroupEnd"}) {
        if (called == taking) free_memory -= 100;
      }
    };
  }
};

TEST_F(TakenMemoryTest, ReportsFirstOperations) {
  AllReduce(comm_);
  AllReduce(comm_);
  EXPECT_THAT(notes, ElementsAre("took 100 at 1"));
  EXPECT_EQ(ncclSuccess, ncclAllReduce(nullptr, nullptr, 4096, ncclFloat, ncclSum, comm_, nullptr));
  EXPECT_EQ(ncclSuccess, ncclSend(nullptr, 1, ncclFloat, 0, comm_, nullptr));
  EXPECT_EQ(ncclSuccess, ncclSend(nullptr, 1, ncclFloat, 0, comm_, nullptr));
  EXPECT_THAT(notes, ElementsAre("took 100 at 1", "took 100 at 3", "took 100 at 3"));
  EXPECT_EQ(ncclSuccess, ncclSend(nullptr, 1, ncclFloat, 1, comm_, nullptr));
  EXPECT_EQ(notes.size(), 4u);
}

TEST_F(TakenMemoryTest, ReportsAGroupOnceForEachDevice) {
  const ncclComm_t other = Make();
  notes.clear();
  const auto group = [&] {
    ncclGroupStart();
    for (const ncclComm_t comm : {comm_, other}) {
      ncclBroadcast(nullptr, nullptr, 8, ncclFloat, 0, comm, nullptr);
    }
    ncclGroupEnd();
  };
  group();
  group();
  EXPECT_THAT(notes, ElementsAre("took 100 at 0"));
  ncclCommAbort(other);
}

TEST_F(TakenMemoryTest, ReportsNoFailedAndNoNonBlockingOperation) {
  NoopNccl()->result = ncclInternalError;
  AllReduce(comm_);
  NoopNccl()->result = ncclSuccess;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclComm_t other = Make(2, 1, &config);
  notes.clear();
  AllReduce(other);
  EXPECT_THAT(notes, IsEmpty());
  AllReduce(comm_);
  EXPECT_THAT(notes, ElementsAre("took 100 at 1"));
  ncclCommAbort(other);
}

}  // namespace
}  // namespace rewire::shim
