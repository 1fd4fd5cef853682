// Aborts of waiting kernels, connects and initialisations; kernel slots.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "tests/simgpu/nccl/root.h"
#include "tests/unit/simgpu_nccl/world.h"

namespace simnccl {
namespace {

TEST(Abort, KernelsLeaveAndCallersReturn) {
  // Rank 0 waits in a kernel, rank 1 on the host for a peer that never connects.
  OnThreads(1, [](int) {
    ncclComm_t comms[2];
    ASSERT_NCCL(ncclCommInitAll(comms, 2, nullptr));
    OnThreads(2, [&](int r) {
      Rank gpu(r);
      int64_t* data = gpu.Put<int64_t>({1});
      ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comms[r], gpu.stream()));
      ASSERT_TRUE(gpu.Sync());
    });
    Rank gpu0(0);
    int64_t* data = gpu0.Put<int64_t>({1});
    ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comms[0], gpu0.stream()));
    std::thread caller([&] {
      Rank gpu1(1);
      int64_t* buffer = gpu1.Put<int64_t>({1});
      EXPECT_EQ(ncclInternalError, ncclSend(buffer, 1, ncclInt64, 0, comms[1], gpu1.stream()));
    });
    EXPECT_NE(0, TestDriver::Get().StreamQuery(gpu0.stream()));
    ASSERT_NCCL(ncclCommAbort(comms[0]));
    ASSERT_TRUE(gpu0.Sync());
    // The flags end the call; only at the end of the group may no thread be inside.
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclCommAbort(comms[1]));
    caller.join();
    ASSERT_NCCL(ncclGroupEnd());
  });
}

TEST(Abort, InitialisationWithoutPeers) {
  Rank gpu(0);
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclInProgress, ncclCommInitRankConfig(&comm, 2, id, 0, &config));
  ASSERT_NE(nullptr, comm);
  int count = 0;
  EXPECT_EQ(ncclInvalidArgument, ncclCommCount(comm, &count));
  ASSERT_NCCL(ncclCommAbort(comm));

  // The same abort of a blocking call, from another thread.
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclComm_t blocking = nullptr;
  std::thread caller([&] {
    Rank own(1);
    EXPECT_EQ(ncclInternalError, ncclCommInitRankConfig(&blocking, 2, id, 0, nullptr));
  });
  ASSERT_TRUE(Eventually([&] { return __atomic_load_n(&blocking, __ATOMIC_ACQUIRE) != nullptr; }));
  ASSERT_NCCL(ncclGroupStart());
  ASSERT_NCCL(ncclCommAbort(__atomic_load_n(&blocking, __ATOMIC_ACQUIRE)));
  caller.join();
  ASSERT_NCCL(ncclGroupEnd());
}

TEST(AbortDeathTest, AnAbortUnderABlockingInitialisationCorruptsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Rank gpu(0);
        ncclUniqueId id;
        (void)ncclGetUniqueId(&id);
        ncclComm_t comm = nullptr;
        std::thread caller([&] {
          Rank own(1);
          (void)ncclCommInitRankConfig(&comm, 2, id, 0, nullptr);
        });
        (void)Eventually([&] { return __atomic_load_n(&comm, __ATOMIC_ACQUIRE) != nullptr; });
        (void)ncclCommAbort(__atomic_load_n(&comm, __ATOMIC_ACQUIRE));
        caller.join();
      },
      "freed during a thread's call");
}

TEST(Abort, ADeadPeerIsAnAsynchronousError) {
  ncclComm_t comms[2];
  ASSERT_NCCL(ncclCommInitAll(comms, 2, nullptr));
  OnThreads(2, [&](int r) {
    Rank gpu(r);
    int64_t* data = gpu.Put<int64_t>({1});
    ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comms[r], gpu.stream()));
    ASSERT_TRUE(gpu.Sync());
  });
  Rank gpu(0);
  int64_t* data = gpu.Put<int64_t>({1});
  ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comms[0], gpu.stream()));
  ASSERT_NCCL(ncclCommAbort(comms[1]));
  ncclResult_t state = ncclSuccess;
  ASSERT_TRUE(Eventually([&] {
    return ncclCommGetAsyncError(comms[0], &state) == ncclSuccess && state != ncclSuccess;
  }));
  EXPECT_EQ(ncclRemoteError, state);
  // The kernel continues to wait, as the real kernel does, and new calls are refused.
  EXPECT_NE(0, TestDriver::Get().StreamQuery(gpu.stream()));
  EXPECT_EQ(ncclRemoteError,
            ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comms[0], gpu.stream()));
  ASSERT_NCCL(ncclCommAbort(comms[0]));
  ASSERT_TRUE(gpu.Sync());
}

TEST(Abort, GarbageOnTheRootsPortIsIgnored) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  IdContent content;
  std::memcpy(&content, id.internal, sizeof(content));
  std::vector<int> sockets;
  for (const std::string& bytes : {std::string(200, 'x'), std::string("GET / HTTP/1.0\r\n\r\n"),
                                   std::string("s"), std::string()}) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(
        0, ::connect(fd, reinterpret_cast<sockaddr*>(&content.address), sizeof(content.address)));
    ASSERT_EQ(static_cast<ssize_t>(bytes.size()),
              ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    sockets.push_back(fd);
  }
  OnThreads(2, [&](int r) {
    Rank gpu(r);
    ncclComm_t comm = nullptr;
    ASSERT_NCCL(ncclCommInitRank(&comm, 2, id, r));
    ASSERT_NCCL(ncclCommDestroy(comm));
  });
  for (const int fd : sockets) ::close(fd);
}

// Run with one kernel slot only (SIMGPU_KERNEL_SLOTS=1, see CMakeLists.txt).
TEST(KernelSlots, APlantedWarmUpOnABusyCommunicatorDeadlocks) {
  if (std::getenv("SIMGPU_KERNEL_SLOTS") == nullptr) GTEST_SKIP() << "needs SIMGPU_KERNEL_SLOTS=1";
  ncclComm_t work[2];
  ncclComm_t warm[2];
  ASSERT_NCCL(ncclCommInitAll(work, 2, nullptr));
  ASSERT_NCCL(ncclCommInitAll(warm, 2, nullptr));
  const auto reduce = [](ncclComm_t comm, Rank& gpu, cudaStream_t stream) {
    int64_t* data = gpu.Put<int64_t>({1});
    ASSERT_NCCL(ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, stream));
  };
  OnThreads(2, [&](int r) {
    Rank gpu(r);
    reduce(work[r], gpu, gpu.stream());
    reduce(warm[r], gpu, gpu.stream());
    ASSERT_TRUE(gpu.Sync());
  });
  Rank first[2] = {Rank(0), Rank(1)};
  Rank second[2] = {Rank(0), Rank(1)};
  const TestDriver& t = TestDriver::Get();
  // The orders on the two devices differ, on different streams. The device chooses the kernel that
  // gets the slot: if both devices choose alike, the attempt completes and is repeated.
  const auto all_done = [&] {
    return t.StreamQuery(first[0].stream()) == 0 && t.StreamQuery(second[0].stream()) == 0 &&
           t.StreamQuery(first[1].stream()) == 0 && t.StreamQuery(second[1].stream()) == 0;
  };
  bool stuck = false;
  for (int attempt = 0; attempt < 50 && !stuck; ++attempt) {
    reduce(work[0], first[0], first[0].stream());
    reduce(warm[1], second[1], second[1].stream());
    reduce(warm[0], second[0], second[0].stream());
    reduce(work[1], first[1], first[1].stream());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    stuck = true;
    while (stuck && std::chrono::steady_clock::now() < deadline) {
      stuck = !all_done();
      std::this_thread::yield();
    }
  }
  EXPECT_TRUE(stuck);
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 2; ++r) {
    ASSERT_NCCL(ncclCommAbort(work[r]));
    ASSERT_NCCL(ncclCommAbort(warm[r]));
  }
  ASSERT_NCCL(ncclGroupEnd());
  for (int r = 0; r < 2; ++r) {
    EXPECT_TRUE(first[r].Sync());
    EXPECT_TRUE(second[r].Sync());
  }
}

}  // namespace
}  // namespace simnccl
