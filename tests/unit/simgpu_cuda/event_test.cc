// Events and waits across streams, by the driver's documented rules.
#include "tests/unit/simgpu_cuda/device_test.h"

namespace simgpu_test {
namespace {

class EventTest : public DeviceTest {};

TEST_F(EventTest, AStreamWaitsForAnothersEvent) {
  const CUstream first = NewStream(), second = NewStream();
  const CUevent event = NewEvent();
  Gate gate, reached;
  reached.Open();
  ASSERT_EQ(cuLaunchHostFunc(first, &Gate::Hold, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchHostFunc(second, &Gate::Hold, &reached), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(reached.arrived(), 0);
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(reached.arrived(), 1);
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
}

TEST_F(EventTest, NeverRecordedCountsAsPassed) {
  const CUevent event = NewEvent();
  const CUstream stream = NewStream();
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST_F(EventTest, AWaitTakesTheRecordOfItsOwnTime) {
  const CUstream first = NewStream(), second = NewStream(), waiter = NewStream();
  const CUevent event = NewEvent();
  Gate early, late;
  ASSERT_EQ(cuLaunchHostFunc(first, &Gate::Hold, &early), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(waiter, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchHostFunc(second, &Gate::Hold, &late), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, second), CUDA_SUCCESS);  // recorded again, after the other gate
  early.Open();
  EXPECT_EQ(cuStreamSynchronize(waiter), CUDA_SUCCESS);  // would hang if it followed the re-record
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  late.Open();
  EXPECT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
}

TEST_F(EventTest, DestroyedWhileAwaited) {
  const CUstream first = NewStream(), second = NewStream();
  const CUevent event = NewEvent();
  Gate gate;
  ASSERT_EQ(cuLaunchHostFunc(first, &Gate::Hold, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_EQ(cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy_v2(event), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(EventTest, ElapsedTime) {
  const CUstream stream = NewStream();
  const CUevent start = NewEvent(CU_EVENT_DEFAULT), end = NewEvent(CU_EVENT_DEFAULT);
  const CUevent untimed = NewEvent(CU_EVENT_DISABLE_TIMING);
  float time = -1;
  EXPECT_EQ(cuEventElapsedTime(&time, start, end), CUDA_ERROR_INVALID_HANDLE);  // not recorded
  Gate gate;
  ASSERT_EQ(cuEventRecord(start, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(untimed, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchHostFunc(stream, &Gate::Hold, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(end, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventElapsedTime(&time, start, end), CUDA_ERROR_NOT_READY);
  gate.Open();
  ASSERT_EQ(cuEventSynchronize(end), CUDA_SUCCESS);
  ASSERT_EQ(cuEventElapsedTime(&time, start, end), CUDA_SUCCESS);
  EXPECT_GT(time, 0);
  EXPECT_EQ(cuEventElapsedTime(&time, start, untimed), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(EventTest, WrongArguments) {
  CUevent event = nullptr;
  const auto bogus = reinterpret_cast<CUevent>(uintptr_t{0x1234560});
  EXPECT_EQ(cuEventCreate(&event, 0x80), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuEventRecord(bogus, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamWaitEvent(nullptr, bogus, 0), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamWaitEvent(nullptr, NewEvent(), 8), CUDA_ERROR_INVALID_VALUE);
  // An event is recorded only in streams of its own context.
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
  const CUevent foreign = NewEvent();
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(foreign, NewStream()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(foreign), CUDA_ERROR_INVALID_HANDLE);  // destroyed with its context
}

}  // namespace
}  // namespace simgpu_test
