// The capture state, and the calls that it forbids to each thread.
#include <thread>

#include "tests/unit/simgpu_cuda/device_test.h"

namespace simgpu_test {
namespace {

class CaptureTest : public DeviceTest {
 protected:
  static CUstreamCaptureStatus Status(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    return status;
  }
};

TEST_F(CaptureTest, BeginAndEnd) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  EXPECT_EQ(Status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(Status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUstreamCaptureStatus status{};
  uint64_t id = 0;
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &status, &id), CUDA_SUCCESS);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(Status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamBeginCapture_v2(stream, static_cast<CUstreamCaptureMode>(3)),
            CUDA_ERROR_INVALID_VALUE);
}

// The driver remembers the last stream that it was asked for.
TEST_F(CaptureTest, AnswersDoNotOutliveTheStateOfAStream) {
  const CUstream origin = NewStream();
  const CUevent event = NewEvent();
  CUstream joins = nullptr;
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamCreate(&joins, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, origin), CUDA_SUCCESS);
  EXPECT_EQ(Status(joins), CU_STREAM_CAPTURE_STATUS_NONE);
  ASSERT_EQ(cuStreamWaitEvent(joins, event, CU_EVENT_WAIT_DEFAULT), CUDA_SUCCESS);
  EXPECT_EQ(Status(joins), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(cuStreamEndCapture(origin, &graph), CUDA_SUCCESS);
  EXPECT_EQ(Status(joins), CU_STREAM_CAPTURE_STATUS_NONE);
  ASSERT_EQ(cuStreamDestroy_v2(joins), CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  EXPECT_EQ(cuStreamIsCapturing(joins, &status), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

// The simulation has no graph launch, so captured work is dropped.
TEST_F(CaptureTest, CapturedWorkDoesNotRun) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  int calls = 0;
  const auto count = [](void* calls_of) { ++*static_cast<int*>(calls_of); };
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchHostFunc(stream, count, &calls), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchHostFunc(stream, count, &calls), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(calls, 1);
}

TEST_F(CaptureTest, StreamSynchronizeInvalidatesCapture) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(Status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(cuLaunchHostFunc(stream, &Gate::Hold, nullptr), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(CaptureTest, ContextSynchronizeInvalidatesCaptureInEveryMode) {
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED}) {
    const CUstream stream = NewStream();
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamBeginCapture_v2(stream, mode), CUDA_SUCCESS);
    std::thread([&] {
      EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }).join();
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

// NCCL forks its own stream from the program's in this way.
TEST_F(CaptureTest, AStreamJoinsByAnEventOfTheCapture) {
  const CUstream stream = NewStream();
  const CUstream other = NewStream();
  const CUevent fork = NewEvent();
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(fork, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(fork), CUDA_ERROR_CAPTURED_EVENT);
  ASSERT_EQ(cuStreamWaitEvent(other, fork, CU_EVENT_WAIT_DEFAULT), CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  uint64_t id = 0, id_of_other = 0;
  CUgraph graph_of_other = nullptr;
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &status, &id), CUDA_SUCCESS);
  ASSERT_EQ(
      cuStreamGetCaptureInfo_v2(other, &status, &id_of_other, &graph_of_other, nullptr, nullptr),
      CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(id, id_of_other);
  EXPECT_EQ(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(graph, graph_of_other);
  EXPECT_EQ(Status(other), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(cuStreamWaitEvent(other, fork, CU_EVENT_WAIT_DEFAULT), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CaptureTest, AUserObjectEndsWithItsGraph) {
  const CUstream stream = NewStream();
  int ends = 0;
  const auto end = [](void* ends_of) { ++*static_cast<int*>(ends_of); };
  for (const bool valid : {true, false}) {
    ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    CUstreamCaptureStatus status{};
    CUgraph graph = nullptr, ended = nullptr;
    ASSERT_EQ(cuStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr),
              CUDA_SUCCESS);
    CUuserObject object = nullptr;
    ASSERT_EQ(cuUserObjectCreate(&object, &ends, end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
              CUDA_SUCCESS);
    ASSERT_EQ(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
    if (!valid) {
      EXPECT_NE(cuStreamSynchronize(stream), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuStreamEndCapture(stream, &ended) == CUDA_SUCCESS, valid);
    EXPECT_EQ(ends, valid ? 0 : 2);
    EXPECT_EQ(cuGraphDestroy(graph), valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(ends, valid ? 1 : 2);
  }
}

// The event is recorded outside the capture.
TEST_F(CaptureTest, AcceptsOutsideEventOnlyWithExternalFlag) {
  const CUstream stream = NewStream();
  const CUstream other = NewStream();
  const CUevent event = NewEvent();
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, other), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL), CUDA_SUCCESS);
  EXPECT_EQ(Status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, TheLegacyStreamMayNotDependOnACapture) {
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(cuEventRecord(NewEvent(), nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(Status(blocking), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, OnlyTheBeginningThreadEndsIt) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

// The effect of another thread's allocation on this thread's capture depends on both modes.
TEST_F(CaptureTest, AllocationsOfOtherThreads) {
  struct Case {
    CUstreamCaptureMode capture;
    CUstreamCaptureMode thread;
    CUresult expected;
  };
  const Case cases[] = {
      {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
      {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_SUCCESS},
      {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS},
      {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS},
      {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS},
  };
  for (const Case& c : cases) {
    const CUstream stream = NewStream();
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamBeginCapture_v2(stream, c.capture), CUDA_SUCCESS);
    std::thread([&] {
      CUstreamCaptureMode mode = c.thread;
      EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
      EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
      EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
      CUdeviceptr memory = 0;
      EXPECT_EQ(cuMemAlloc_v2(&memory, 64), c.expected);
    }).join();
    EXPECT_EQ(cuStreamEndCapture(stream, &graph),
              c.expected == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST_F(CaptureTest, AllocationsOfTheSameThread) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc_v2(&memory, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc_v2(&memory, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simgpu_test
