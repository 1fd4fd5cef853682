// Groups: sends and receives of any order, several streams, nesting, errors, simulation.

#include "tests/unit/simgpu_nccl/world.h"

namespace simnccl {
namespace {

TEST(Groups, ManyMessagesInAnyOrderDoNotDeadlock) {
  constexpr int kRanks = 4;
  constexpr size_t kCount = 400'000;  // More than all slots of a peer hold.
  OnRanks(kRanks, [](int r, ncclComm_t comm, Rank& gpu) {
    std::vector<int32_t*> out;
    std::vector<int32_t*> in;
    for (int p = 0; p < kRanks; ++p) {
      out.push_back(gpu.Put(std::vector<int32_t>(kCount, r * 100 + p)));
      in.push_back(gpu.Put(std::vector<int32_t>(kCount, -1)));
    }
    int64_t* sum = gpu.Put<int64_t>({r});
    ASSERT_NCCL(ncclGroupStart());
    // Each rank first sends to every rank, and receives in the opposite order, around a collective.
    for (int p = 0; p < kRanks; ++p) {
      ASSERT_NCCL(ncclSend(out[p], kCount, ncclInt32, p, comm, gpu.stream()));
    }
    ASSERT_NCCL(ncclAllReduce(sum, sum, 1, ncclInt64, ncclSum, comm, gpu.stream()));
    for (int p = kRanks - 1; p >= 0; --p) {
      ASSERT_NCCL(ncclRecv(in[p], kCount, ncclInt32, p, comm, gpu.stream()));
    }
    ASSERT_NCCL(ncclGroupEnd());
    ASSERT_TRUE(gpu.Sync());
    EXPECT_EQ(6, *sum);
    for (int p = 0; p < kRanks; ++p) {
      EXPECT_EQ(std::vector<int32_t>(kCount, p * 100 + r),
                std::vector<int32_t>(in[p], in[p] + kCount));
    }
  });
}

TEST(Groups, OneCommunicatorIsInOrderOverStreams) {
  OnRanks(2, [](int r, ncclComm_t comm, Rank& gpu) {
    Rank other(r);
    int64_t* data = gpu.Put<int64_t>({1});
    for (int i = 0; i < 20; ++i) {
      const cudaStream_t stream = i % 2 == 0 ? gpu.stream() : other.stream();
      ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, stream));
    }
    ASSERT_TRUE(gpu.Sync());
    ASSERT_TRUE(other.Sync());
    EXPECT_EQ(1 << 20, *data);
    // Two streams are in one group: each sees the result.
    int64_t* a = gpu.Put<int64_t>({1});
    int64_t* b = gpu.Put<int64_t>({2});
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclAllReduce(a, a, 1, ncclInt64, ncclSum, comm, gpu.stream()));
    ASSERT_NCCL(ncclAllReduce(b, b, 1, ncclInt64, ncclSum, comm, other.stream()));
    ASSERT_NCCL(ncclGroupEnd());
    ASSERT_TRUE(other.Sync());
    EXPECT_EQ(2, *a);
    EXPECT_EQ(4, *b);
    ASSERT_TRUE(gpu.Sync());
  });
}

TEST(Groups, NestAndFailAsAWhole) {
  EXPECT_EQ(ncclInvalidUsage, ncclGroupEnd());
  OnRanks(1, [](int, ncclComm_t comm, Rank& gpu) {
    int64_t* data = gpu.Put<int64_t>({1, 5});
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclSend(data, 1, ncclInt64, 0, comm, gpu.stream()));
    ASSERT_NCCL(ncclGroupEnd());
    EXPECT_EQ(5, data[1]);
    ASSERT_NCCL(ncclRecv(data + 1, 1, ncclInt64, 0, comm, gpu.stream()));
    ASSERT_NCCL(ncclGroupEnd());
    ASSERT_TRUE(gpu.Sync());
    EXPECT_EQ(1, data[1]);

    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclSend(data, 1, ncclInt64, 0, comm, gpu.stream()));
    EXPECT_EQ(ncclInvalidArgument, ncclSend(data, 1, ncclInt64, 9, comm, gpu.stream()));
    EXPECT_EQ(ncclInvalidArgument, ncclGroupEnd());
    // The failed group is gone: the next one starts empty.
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclGroupEnd());
  });
}

// The shrinks of one parent have one hash, so that NCCL takes them in the program's order, wherever
// they are in memory.
TEST(Groups, CommunicatorsOfOneHashHaveOneOrderOnAllRanks) {
  constexpr int kShrinks = 4;
  OnRanks(3, [](int r, ncclComm_t comm, Rank& gpu) {
    if (r == 2) return;
    // On rank 1 the later shrinks get the memory of these, the last first.
    std::vector<ncclComm_t> holes(r == 1 ? kShrinks : 0);
    for (ncclComm_t& hole : holes) {
      ncclUniqueId id;
      ASSERT_NCCL(ncclGetUniqueId(&id));
      ASSERT_NCCL(ncclCommInitRank(&hole, 1, id, 0));
    }
    int exclude[] = {2};
    std::vector<ncclComm_t> shrinks(kShrinks);
    for (ncclComm_t& shrink : shrinks) {
      ASSERT_NCCL(ncclCommShrink(comm, exclude, 1, &shrink, nullptr, NCCL_SHRINK_DEFAULT));
      if (holes.empty()) continue;
      ASSERT_NCCL(ncclCommDestroy(holes.back()));
      holes.pop_back();
    }
    int64_t* data = gpu.Put(std::vector<int64_t>(kShrinks, 1));
    ASSERT_NCCL(ncclGroupStart());
    for (int i = 0; i < kShrinks; ++i) {
      ASSERT_NCCL(
          ncclAllReduce(data + i, data + i, 1, ncclInt64, ncclSum, shrinks[i], gpu.stream()));
    }
    ASSERT_NCCL(ncclGroupEnd());
    ASSERT_TRUE(gpu.Sync());
    for (int i = 0; i < kShrinks; ++i) EXPECT_EQ(2, data[i]);
    for (const ncclComm_t shrink : shrinks) ASSERT_NCCL(ncclCommDestroy(shrink));
  });
}

TEST(Groups, SimulationConnectsAndLaunchesNothing) {
  OnRanks(2, [](int, ncclComm_t comm, Rank& gpu) {
    int64_t* data = gpu.Put<int64_t>({1});
    // Connecting leaves staging memory on this rank's own device.
    size_t before = 0;
    size_t after = 0;
    size_t total = 0;
    ASSERT_EQ(0, TestDriver::Get().MemGetInfo(&before, &total));
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream()));
    ASSERT_NCCL(ncclGroupSimulateEnd(&info));
    EXPECT_GT(info.estimatedTime, 0.0f);
    ASSERT_EQ(0, TestDriver::Get().MemGetInfo(&after, &total));
    EXPECT_LT(after, before);
    ASSERT_EQ(0, TestDriver::Get().StreamQuery(gpu.stream()));
    EXPECT_EQ(1, *data);
    info.magic = 0;
    ASSERT_NCCL(ncclGroupStart());
    EXPECT_EQ(ncclInvalidArgument, ncclGroupSimulateEnd(&info));
  });
}

TEST(Groups, AMessageOfNoBytesConnects) {
  OnRanks(2, [](int rank, ncclComm_t comm, Rank& gpu) {
    int64_t* data = gpu.Put<int64_t>({7});
    size_t free[3] = {};
    size_t total = 0;
    for (const size_t count : {0, 1}) {
      ASSERT_EQ(0, TestDriver::Get().MemGetInfo(&free[count], &total));
      ASSERT_NCCL(ncclGroupStart());
      ASSERT_NCCL(ncclSend(data, count, ncclInt64, 1 - rank, comm, gpu.stream()));
      ASSERT_NCCL(ncclRecv(data, count, ncclInt64, 1 - rank, comm, gpu.stream()));
      ASSERT_NCCL(ncclGroupEnd());
      ASSERT_TRUE(gpu.Sync());
    }
    ASSERT_EQ(0, TestDriver::Get().MemGetInfo(&free[2], &total));
    EXPECT_LT(free[1], free[0]);
    EXPECT_EQ(free[2], free[1]);
  });
}

TEST(Groups, SimulationOfNonBlockingLaunches) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  OnRanks(
      2,
      [](int, ncclComm_t comm, Rank& gpu) {
        for (const int64_t expected : {2, 4}) {  // With and without a connection to make.
          int64_t* data = gpu.Put<int64_t>({expected / 2});
          ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
          ASSERT_NCCL(ncclGroupStart());
          ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream()));
          const ncclResult_t ended = ncclGroupSimulateEnd(&info);
          EXPECT_TRUE(ended == ncclSuccess || ended == ncclInProgress);
          ncclResult_t state = ncclInProgress;
          ASSERT_TRUE(Eventually([&] {
            return ncclCommGetAsyncError(comm, &state) == ncclSuccess && state != ncclInProgress;
          }));
          ASSERT_TRUE(gpu.Sync());
          EXPECT_EQ(expected, *data);
        }
      },
      &config);
}

}  // namespace
}  // namespace simnccl
