// C++ kernels of a library, and launches with attributes.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/simgpu_cuda/device_test.h"

namespace simgpu_test {
namespace {

class LaunchTest : public DeviceTest {};

struct Seen {
  Gate gate;
  uint64_t argument = 0;
  unsigned blocks = 0;
};

void Record(void* context, const void* arguments, unsigned int blocks) {
  auto* const seen = static_cast<Seen*>(context);
  Gate::Hold(&seen->gate);
  std::memcpy(&seen->argument, arguments, sizeof seen->argument);
  seen->blocks = blocks;
}

TEST_F(LaunchTest, BroughtKernelGetsACopyOfItsPackedArguments) {
  const CUstream stream = NewStream();
  Seen seen;
  CUfunction function = nullptr;
  ASSERT_EQ(cuSimCreateFunction(&function, &Record, &seen), CUDA_SUCCESS);
  uint64_t argument = 42;
  size_t size = sizeof argument;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &argument, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  ASSERT_EQ(cuLaunchKernel(function, 3, 1, 1, 32, 1, 1, 0, stream, nullptr, extra), CUDA_SUCCESS);
  argument = 43;
  seen.gate.Open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(seen.argument, 42u);
  EXPECT_EQ(seen.blocks, 3u);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, LaunchCompletionEventIsRecordedWhenTheKernelStarts) {
  const CUstream stream = NewStream();
  Seen seen;
  CUfunction function = nullptr;
  CUevent started = nullptr;
  ASSERT_EQ(cuSimCreateFunction(&function, &Record, &seen), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&started, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  Gate before;
  ASSERT_EQ(cuLaunchHostFunc(stream, &Gate::Hold, &before), CUDA_SUCCESS);
  uint64_t argument = 1;
  size_t size = sizeof argument;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &argument, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent.event = started;
  CUlaunchConfig config{1, 1, 1, 32, 1, 1, 0, stream, &attribute, 1};
  ASSERT_EQ(cuLaunchKernelEx(&config, function, nullptr, extra), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(started), CUDA_ERROR_NOT_READY);
  before.Open();
  EXPECT_EQ(cuEventSynchronize(started), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  seen.gate.Open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy_v2(started), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simgpu_test
