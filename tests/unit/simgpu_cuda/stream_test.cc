// Order within a stream, real asynchrony, the default streams, host functions.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/unit/simgpu_cuda/device_test.h"

namespace simgpu_test {
namespace {

class StreamTest : public DeviceTest {};

struct Step {
  std::vector<int>* order;
  int number;
};

void Append(void* data) {
  const auto* step = static_cast<Step*>(data);
  step->order->push_back(step->number);
}

TEST_F(StreamTest, RunsInOrderAndAsynchronously) {
  std::vector<int> order;
  std::array<Step, 100> steps{};
  Gate gate;
  const CUstream stream = NewStream();
  ASSERT_EQ(cuLaunchHostFunc(stream, &Gate::Hold, &gate), CUDA_SUCCESS);
  for (int i = 0; i < 100; ++i) {
    steps[static_cast<size_t>(i)] = {&order, i};
    ASSERT_EQ(cuLaunchHostFunc(stream, &Append, &steps[static_cast<size_t>(i)]), CUDA_SUCCESS);
  }
  // The calls returned before the work ended.
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(StreamTest, CopiesAndFillsHappenInStreamOrder) {
  const CUstream stream = NewStream();
  const CUdeviceptr a = NewMemory(4096), b = NewMemory(4096);
  void* locked = nullptr;
  ASSERT_EQ(cuMemAllocHost_v2(&locked, 4096), CUDA_SUCCESS);
  auto* const host = static_cast<unsigned*>(locked);
  std::fill_n(host, 1024, 0u);
  Gate gate;
  ASSERT_EQ(cuLaunchHostFunc(stream, &Gate::Hold, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(a, 7, 1024, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync_v2(b, a, 4096, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8Async(a, 0xff, 4096, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoHAsync_v2(host, b, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(host[1023], 0u);
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(host[0], 7u);
  EXPECT_EQ(host[1023], 7u);
  ASSERT_EQ(cuMemcpyDtoH_v2(host, a, 4096), CUDA_SUCCESS);
  EXPECT_EQ(host[5], 0xffffffffu);
  EXPECT_EQ(cuMemFreeHost(locked), CUDA_SUCCESS);
}

TEST_F(StreamTest, AsynchronousCopyFromPageableMemoryReadsItBeforeTheCallReturns) {
  const CUstream stream = NewStream();
  const CUdeviceptr memory = NewMemory(4096);
  unsigned value = 7;
  Gate gate;
  ASSERT_EQ(cuLaunchHostFunc(stream, &Gate::Hold, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoDAsync_v2(memory, &value, sizeof value, stream), CUDA_SUCCESS);
  value = 8;
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH_v2(&value, memory, sizeof value), CUDA_SUCCESS);
  EXPECT_EQ(value, 7u);
}

TEST_F(StreamTest, AsynchronousCopyToPageableMemoryIsCompleteWhenTheCallReturns) {
  const CUstream stream = NewStream();
  const CUdeviceptr memory = NewMemory(4096);
  ASSERT_EQ(cuMemsetD8_v2(memory, 3, 4096), CUDA_SUCCESS);
  Gate gate;
  ASSERT_EQ(cuLaunchHostFunc(stream, &Gate::Hold, &gate), CUDA_SUCCESS);
  std::atomic<bool> returned = false;
  bool early = false;
  std::thread opens([&] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (!returned && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    early = returned;
    gate.Open();
  });
  unsigned char value = 0;
  ASSERT_EQ(cuMemcpyDtoHAsync_v2(&value, memory, sizeof value, stream), CUDA_SUCCESS);
  returned = true;
  opens.join();
  EXPECT_FALSE(early);
  EXPECT_EQ(value, 3);
}

TEST_F(StreamTest, LegacyStreamWaitsForBlockingStreamsOnly) {
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  const CUstream free = NewStream(CU_STREAM_NON_BLOCKING);
  Gate held, other;
  ASSERT_EQ(cuLaunchHostFunc(free, &Gate::Hold, &other), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchHostFunc(blocking, &Gate::Hold, &held), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
  held.Open();
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(blocking), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(free), CUDA_ERROR_NOT_READY);
  other.Open();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(StreamTest, BlockingStreamsWaitForTheLegacyStream) {
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  const CUstream free = NewStream(CU_STREAM_NON_BLOCKING);
  const CUevent after = NewEvent();
  Gate gate;
  ASSERT_EQ(cuLaunchHostFunc(nullptr, &Gate::Hold, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(after, blocking), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(after), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuEventRecord(after, free), CUDA_SUCCESS);
  EXPECT_EQ(cuEventSynchronize(after), CUDA_SUCCESS);
  gate.Open();
  EXPECT_EQ(cuStreamSynchronize(blocking), CUDA_SUCCESS);
}

TEST_F(StreamTest, PerThreadStreamsAreOnePerThread) {
  Gate gate;
  ASSERT_EQ(cuLaunchHostFunc(CU_STREAM_PER_THREAD, &Gate::Hold, &gate), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  std::thread other([this] {
    EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  });
  other.join();
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);  // it is a blocking stream
  gate.Open();
  EXPECT_EQ(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
}

TEST_F(StreamTest, DestroyedStreamsFinishTheirWork) {
  std::vector<int> order;
  Step step{&order, 1};
  Gate gate;
  const CUstream stream = NewStream();
  const CUevent done = NewEvent();
  ASSERT_EQ(cuLaunchHostFunc(stream, &Gate::Hold, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchHostFunc(stream, &Append, &step), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(done, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(done), CUDA_ERROR_NOT_READY);
  gate.Open();
  ASSERT_EQ(cuEventSynchronize(done), CUDA_SUCCESS);
  EXPECT_EQ(order.size(), 1u);
}

TEST_F(StreamTest, DestroyedStreamsStillCountForTheirContext) {
  const CUstream stream = NewStream(CU_STREAM_DEFAULT);
  Gate gate;
  ASSERT_EQ(cuLaunchHostFunc(stream, &Gate::Hold, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);  // a blocking stream
  gate.Open();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_SUCCESS);
}

TEST_F(StreamTest, TheDriverIsForbiddenInHostFunctions) {
  CUresult inside = CUDA_SUCCESS;
  const CUstream stream = NewStream();
  const auto call = [](void* result) {
    size_t free = 0;
    *static_cast<CUresult*>(result) = cuMemGetInfo_v2(&free, nullptr);
  };
  ASSERT_EQ(cuLaunchHostFunc(stream, call, &inside), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(inside, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(StreamTest, CallbackGetsItsStreamAndSuccess) {
  static CUstream seen_stream;
  static int seen_status;
  const CUstream stream = NewStream();
  seen_stream = nullptr;
  seen_status = -1;
  const auto callback = [](CUstream given, int status, void*) {
    seen_stream = given;
    seen_status = status;
  };
  ASSERT_EQ(cuStreamAddCallback(stream, callback, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(seen_stream, stream);
  EXPECT_EQ(seen_status, 0);
  EXPECT_EQ(cuStreamAddCallback(stream, callback, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, PrioritiesAndOwners) {
  int least = 1, greatest = 1, priority = 1;
  ASSERT_EQ(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  EXPECT_LT(greatest, least);
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreateWithPriority(&stream, 0, greatest - 10), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, greatest);
  CUcontext context = nullptr;
  ASSERT_EQ(cuStreamGetCtx(stream, &context), CUDA_SUCCESS);
  EXPECT_EQ(context, context_);
}

TEST_F(StreamTest, WrongArguments) {
  CUstream stream = nullptr;
  const auto bogus = reinterpret_cast<CUstream>(uintptr_t{0x1234560});
  EXPECT_EQ(cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamDestroy_v2(bogus), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamDestroy_v2(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamSynchronize(bogus), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamQuery(bogus), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchHostFunc(bogus, &Gate::Hold, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchHostFunc(nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

class StreamDeathTest : public StreamTest {
 protected:
  // Returns whether work on a second stream begins while the first stream holds work that has not
  // begun.
  static bool OvertakesAnotherStream() {
    Gate hog, last, other;
    last.Open();
    other.Open();
    const CUstream first = NewStream(), second = NewStream();
    EXPECT_EQ(cuLaunchHostFunc(first, &Gate::Hold, &hog), CUDA_SUCCESS);
    EXPECT_EQ(cuLaunchHostFunc(first, &Gate::Hold, &last), CUDA_SUCCESS);
    EXPECT_EQ(cuLaunchHostFunc(second, &Gate::Hold, &other), CUDA_SUCCESS);
    const bool overtakes = other.WaitForArrivals(1, rewire::milliseconds(200));
    EXPECT_EQ(last.arrived(), 0);
    hog.Open();
    EXPECT_TRUE(other.WaitForArrivals(1));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return overtakes;
  }
};

TEST_F(StreamDeathTest, OneHardwareQueueKeepsTheOrderOfSubmissionOverStreams) {
  EXPECT_TRUE(OvertakesAnotherStream());
  // The driver reads the variable once in a process.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  EXPECT_EXIT(std::_Exit(OvertakesAnotherStream() ? 1 : 0), testing::ExitedWithCode(0), "");
  ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

}  // namespace
}  // namespace simgpu_test
