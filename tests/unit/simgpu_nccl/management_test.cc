// Making, splitting, shrinking and ending communicators, blocking and non-blocking, alone and in
// groups.

#include <atomic>
#include <cstdlib>

#include "reconfig/base/clock.h"
#include "tests/unit/simgpu_nccl/world.h"

namespace simnccl {
namespace {

ncclResult_t StateOf(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
  return state;
}

// Expects the sum over all ranks of rank + 1, from an AllReduce.
void ExpectSum(ncclComm_t comm, Rank& gpu, int64_t mine, int64_t sum) {
  int64_t* data = gpu.Put<int64_t>({mine});
  const ncclResult_t result = ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream());
  ASSERT_TRUE(result == ncclSuccess || result == ncclInProgress) << ncclGetLastError(nullptr);
  ASSERT_TRUE(Eventually([&] { return StateOf(comm) != ncclInProgress; }));
  ASSERT_EQ(ncclSuccess, StateOf(comm));
  ASSERT_TRUE(gpu.Sync());
  EXPECT_EQ(sum, *data);
}

TEST(Management, AsksAreAnswered) {
  OnRanks(2, [](int r, ncclComm_t comm, Rank&) {
    int value = -1;
    ASSERT_NCCL(ncclCommCount(comm, &value));
    EXPECT_EQ(2, value);
    ASSERT_NCCL(ncclCommUserRank(comm, &value));
    EXPECT_EQ(r, value);
    ASSERT_NCCL(ncclCommCuDevice(comm, &value));
    EXPECT_EQ(r, value);
    EXPECT_EQ(ncclInvalidArgument, ncclCommCount(comm, nullptr));
    EXPECT_EQ(ncclInvalidArgument, ncclCommCount(nullptr, &value));
  });
  int version = 0;
  ASSERT_NCCL(ncclGetVersion(&version));
  EXPECT_EQ(22809, version);
}

TEST(Management, InitAllAndGroupedCollectivesFromOneThread) {
  ncclComm_t comms[3];
  ASSERT_NCCL(ncclCommInitAll(comms, 3, nullptr));
  std::vector<std::unique_ptr<Rank>> gpus;
  std::vector<int64_t*> data;
  for (int i = 0; i < 3; ++i) {
    gpus.push_back(std::make_unique<Rank>(i));
    data.push_back(gpus[i]->Put<int64_t>({i + 1}));
  }
  ASSERT_NCCL(ncclGroupStart());
  for (int i = 0; i < 3; ++i) {
    ASSERT_NCCL(
        ncclAllReduce(data[i], data[i], 1, ncclInt64, ncclSum, comms[i], gpus[i]->stream()));
  }
  ASSERT_NCCL(ncclGroupEnd());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(gpus[i]->Sync());
    EXPECT_EQ(6, *data[i]);
  }
  ASSERT_NCCL(ncclGroupStart());
  for (const ncclComm_t comm : comms) ASSERT_NCCL(ncclCommDestroy(comm));
  ASSERT_NCCL(ncclGroupEnd());
  const int twice[] = {0, 0};
  EXPECT_EQ(ncclInvalidUsage, ncclCommInitAll(comms, 2, twice));
  EXPECT_EQ(ncclInvalidArgument, ncclCommInitAll(comms, 0, nullptr));
  EXPECT_EQ(ncclInvalidArgument, ncclCommInitAll(comms, 1000, nullptr));
}

TEST(Management, NonBlocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  OnRanks(
      3,
      [](int r, ncclComm_t comm, Rank& gpu) {
        ExpectSum(comm, gpu, r + 1, 6);
        ExpectSum(comm, gpu, 1, 3);
        ncclComm_t child = nullptr;
        EXPECT_EQ(ncclInProgress, ncclCommSplit(comm, r % 2, -r, &child, nullptr));
        ASSERT_TRUE(Eventually([&] { return StateOf(comm) != ncclInProgress; }));
        ASSERT_EQ(ncclSuccess, StateOf(comm));
        ASSERT_NE(nullptr, child);
        ExpectSum(child, gpu, r + 1, r % 2 == 0 ? 4 : 2);
        int rank = -1;
        ASSERT_NCCL(ncclCommUserRank(child, &rank));
        EXPECT_EQ(r == 0 ? 1 : 0, rank);  // By descending rank.
        EXPECT_EQ(ncclInProgress, ncclCommFinalize(child));
        ASSERT_TRUE(Eventually([&] { return StateOf(child) == ncclSuccess; }));
        ASSERT_NCCL(ncclCommDestroy(child));
      },
      &config);
}

TEST(Management, OddRanksPutOffTheFirstLaunchOnANonBlockingCommunicator) {
  constexpr rewire::Duration kLate = rewire::milliseconds(100);
  ::setenv("SIMNCCL_LATE_LAUNCH_US", "100000", 1);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  OnRanks(
      2,
      [&](int r, ncclComm_t comm, Rank& gpu) {
        int64_t* data = gpu.Put<int64_t>({r});
        const rewire::Time begin = rewire::Now();
        EXPECT_EQ(ncclInProgress,
                  ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream()));
        ASSERT_TRUE(Eventually([&] { return StateOf(comm) == ncclSuccess; }));
        EXPECT_GE(rewire::Now() - begin, r == 1 ? kLate : rewire::Duration(0));
        ASSERT_TRUE(gpu.Sync());
        EXPECT_EQ(1, *data);
      },
      &config);
  ::unsetenv("SIMNCCL_LATE_LAUNCH_US");
}

TEST(Management, BlockingAndNonBlockingDoNotMix) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  OnRanks(1, [&](int, ncclComm_t blocking, Rank& gpu) {
    OnRanks(
        1,
        [&](int, ncclComm_t other, Rank&) {
          int64_t* data = gpu.Put<int64_t>({1});
          ASSERT_NCCL(ncclGroupStart());
          EXPECT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, blocking, gpu.stream()));
          EXPECT_EQ(ncclInvalidArgument,
                    ncclAllReduce(data, data, 1, ncclInt64, ncclSum, other, gpu.stream()));
          EXPECT_EQ(ncclInvalidArgument, ncclGroupEnd());
          EXPECT_EQ(1, *data);
        },
        &config);
  });
}

TEST(Management, SplitOrdersByKeyAndLeavesOut) {
  OnRanks(4, [](int r, ncclComm_t comm, Rank& gpu) {
    ncclComm_t child = comm;
    ASSERT_NCCL(ncclCommSplit(comm, r == 3 ? NCCL_SPLIT_NOCOLOR : 7, 10 - r, &child, nullptr));
    if (r == 3) {
      EXPECT_EQ(nullptr, child);
    } else {
      int value = -1;
      ASSERT_NCCL(ncclCommUserRank(child, &value));
      EXPECT_EQ(2 - r, value);
      ExpectSum(child, gpu, r, 3);
      ASSERT_NCCL(ncclCommDestroy(child));
    }
    ExpectSum(comm, gpu, r, 6);
    EXPECT_EQ(ncclInvalidArgument, ncclCommSplit(comm, -2, 0, &child, nullptr));
  });
}

TEST(Management, AllRanksSplitAfterAShrinkOfSome) {
  OnRanks(3, [](int r, ncclComm_t comm, Rank& gpu) {
    int exclude[] = {2};
    ncclComm_t child = nullptr;
    for (int i = 0; i < 2 && r < 2; ++i) {
      ASSERT_NCCL(ncclCommShrink(comm, exclude, 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
      ExpectSum(child, gpu, r, 1);
      ASSERT_NCCL(ncclCommDestroy(child));
    }
    ASSERT_NCCL(ncclCommSplit(comm, 0, r, &child, nullptr));
    ExpectSum(child, gpu, r, 3);
    ASSERT_NCCL(ncclCommDestroy(child));
  });
}

TEST(Management, ShrinkAfterADeathOnTheRing) {
  std::atomic<int> dead{0};
  OnRanks(4, [&](int r, ncclComm_t comm, Rank& gpu) {
    ExpectSum(comm, gpu, 1, 4);
    int exclude[] = {1};
    if (r == 1) {
      // This rank takes no further part.
      ASSERT_TRUE(Eventually([&] { return dead == 3; }));
      EXPECT_EQ(ncclInvalidArgument, ncclCommShrink(comm, exclude, 1, &comm, nullptr, 0));
      return;
    }
    // Starts an operation that the dead rank never joins.
    int64_t* data = gpu.Put<int64_t>({1});
    ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream()));
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclInvalidUsage, ncclCommShrink(comm, exclude, 1, &child, nullptr, 0));
    ASSERT_NCCL(ncclCommShrink(comm, exclude, 1, &child, nullptr, NCCL_SHRINK_ABORT));
    ASSERT_TRUE(gpu.Sync());
    EXPECT_EQ(ncclInvalidUsage,
              ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream()));
    int value = -1;
    ASSERT_NCCL(ncclCommUserRank(child, &value));
    EXPECT_EQ(r == 0 ? 0 : r - 1, value);
    ExpectSum(child, gpu, r, 5);
    ASSERT_NCCL(ncclCommDestroy(child));
    ++dead;
  });
}

TEST(Management, RevokeEndsOperationsAndLeavesManagement) {
  OnRanks(2, [](int r, ncclComm_t comm, Rank& gpu) {
    ExpectSum(comm, gpu, 1, 2);
    int64_t* data = gpu.Put<int64_t>({1});
    if (r == 0) {
      ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream()));
    }
    EXPECT_EQ(ncclInvalidArgument, ncclCommRevoke(comm, 1));
    ASSERT_NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    ASSERT_TRUE(gpu.Sync());
    EXPECT_EQ(ncclInvalidUsage,
              ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream()));
    EXPECT_EQ(ncclInvalidUsage, ncclCommFinalize(comm));
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclCommSplit(comm, 0, r, &child, nullptr));
    ExpectSum(child, gpu, 1, 2);
    ASSERT_NCCL(ncclCommDestroy(child));
  });
}

TEST(Management, ScalableInitOverSeveralRoots) {
  std::vector<ncclUniqueId> ids(2);
  for (ncclUniqueId& id : ids) ASSERT_NCCL(ncclGetUniqueId(&id));
  OnThreads(5, [&](int r) {
    Rank gpu(r);
    ncclComm_t comm = nullptr;
    ASSERT_NCCL(ncclCommInitRankScalable(&comm, 5, r, 2, ids.data(), nullptr));
    ExpectSum(comm, gpu, r + 1, 15);
    ASSERT_NCCL(ncclCommDestroy(comm));
  });
}

TEST(Management, WindowsAndRegistrations) {
  OnRanks(2, [](int, ncclComm_t comm, Rank& gpu) {
    void* memory = nullptr;
    ASSERT_NCCL(ncclMemAlloc(&memory, 8192));
    void* handle = nullptr;
    ASSERT_NCCL(ncclCommRegister(comm, memory, 8192, &handle));
    ncclWindow_t window = nullptr;
    ASSERT_NCCL(ncclCommWindowRegister(comm, memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC));
    ASSERT_NE(nullptr, window);
    ASSERT_NCCL(ncclCommWindowDeregister(comm, window));
    EXPECT_EQ(ncclInvalidUsage, ncclCommWindowDeregister(comm, window));
    ASSERT_NCCL(ncclCommDeregister(comm, handle));
    EXPECT_EQ(ncclInvalidUsage, ncclCommDeregister(comm, handle));
    // Remaining registrations are freed with the communicator.
    ASSERT_NCCL(ncclCommRegister(comm, gpu.Alloc(64), 64, &handle));
    ASSERT_NCCL(ncclCommWindowRegister(comm, memory, 8192, &window, NCCL_WIN_DEFAULT));
    ASSERT_NCCL(ncclMemFree(memory));
  });
}

TEST(Management, BadInitIsRefused) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclInvalidArgument, ncclCommInitRank(&comm, 2, id, 2));
  EXPECT_EQ(ncclInvalidArgument, ncclCommInitRank(&comm, 0, id, 0));
  EXPECT_EQ(ncclInvalidArgument, ncclCommInitRank(nullptr, 1, id, 0));
  EXPECT_EQ(ncclInvalidArgument, ncclCommInitRank(&comm, 1, ncclUniqueId{}, 0));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 1;
  EXPECT_EQ(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 2;
  EXPECT_EQ(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 4;
  config.maxCTAs = 2;
  EXPECT_EQ(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  // An older caller's struct ends after splitShare.
  config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, trafficClass);
  config.nvlsCTAs = -1;
  Rank gpu(0);
  ASSERT_NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  ASSERT_NCCL(ncclCommDestroy(comm));
}

TEST(Management, TheSameGpuTwiceIsRefused) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  OnThreads(2, [&](int r) {
    Rank gpu(0);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclInvalidUsage, ncclCommInitRank(&comm, 2, id, r));
    EXPECT_EQ(nullptr, comm);
  });
}

TEST(Management, RanksThatDisagreeAreRefused) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  OnThreads(2, [&](int r) {
    Rank gpu(r);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclInvalidUsage, ncclCommInitRank(&comm, 2, id, 0));
  });
}

TEST(Management, FiftyCyclesLeaveNothing) {
  const auto cycle = [] {
    OnRanks(2, [](int, ncclComm_t comm, Rank& gpu) { ExpectSum(comm, gpu, 1, 2); });
  };
  cycle();
  Rank gpu(0);
  size_t free_before = 0;
  size_t free_after = 0;
  size_t total = 0;
  ASSERT_EQ(0, TestDriver::Get().MemGetInfo(&free_before, &total));
  // Threads of the driver, of a plugin and of a sanitizer stay.
  ASSERT_TRUE(Eventually([] { return CountThreads() <= 8; })) << CountThreads();
  const int fds = CountFds();
  const int threads = CountThreads();
  for (int i = 0; i < 50; ++i) cycle();
  EXPECT_TRUE(Eventually([&] { return CountFds() <= fds; })) << CountFds() << " after " << fds;
  EXPECT_TRUE(Eventually([&] { return CountThreads() <= threads; })) << CountThreads();
  ASSERT_EQ(0, TestDriver::Get().MemGetInfo(&free_after, &total));
  EXPECT_EQ(free_before, free_after);
}

}  // namespace
}  // namespace simnccl
