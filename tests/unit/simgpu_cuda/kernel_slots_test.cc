// Kernels and their slots: two kernels that need each other run with two slots, and block with one.
#include "tests/unit/simgpu_cuda/device_test.h"

namespace simgpu_test {
namespace {

class KernelSlotsTest : public DeviceTest {};

// Each kernel reaches the other's gate, as two kernels of one collective do.
struct Pair {
  Gate* mine;
  Gate* other;
};
void Meet(void* data) {
  const auto* pair = static_cast<Pair*>(data);
  pair->other->Open();
  pair->mine->Wait();
}

TEST_F(KernelSlotsTest, TwoThatNeedEachOtherRunInTwoSlots) {
  Gate a, b;
  Pair first{&a, &b}, second{&b, &a};
  const CUstream s1 = NewStream(), s2 = NewStream();
  ASSERT_EQ(cuSimLaunchKernel(s1, &Meet, &first), CUDA_SUCCESS);
  ASSERT_EQ(cuSimLaunchKernel(s2, &Meet, &second), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(KernelSlotsTest, AThirdOneBlocksThemForAsLongAsItRuns) {
  Gate hog, a, b;
  Pair first{&a, &b}, second{&b, &a};
  const CUstream s0 = NewStream(), s1 = NewStream(), s2 = NewStream();
  const CUevent done = NewEvent();
  ASSERT_EQ(cuSimLaunchKernel(s0, &Gate::Hold, &hog), CUDA_SUCCESS);
  ASSERT_TRUE(hog.WaitForArrivals(1));
  ASSERT_EQ(cuSimLaunchKernel(s1, &Meet, &first), CUDA_SUCCESS);
  ASSERT_TRUE(a.WaitForArrivals(1));  // has the last slot
  ASSERT_EQ(cuSimLaunchKernel(s2, &Meet, &second), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(done, s1), CUDA_SUCCESS);
  EXPECT_EQ(b.arrived(), 0);  // no slot for its partner: neither can end
  EXPECT_EQ(cuEventQuery(done), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(s2), CUDA_ERROR_NOT_READY);
  hog.Open();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(done), CUDA_SUCCESS);
}

TEST_F(KernelSlotsTest, HostFunctionsAndCopiesTakeNone) {
  Gate hog;
  const CUdeviceptr memory = NewMemory(16);
  const CUstream s0 = NewStream(), s1 = NewStream(), s2 = NewStream();
  ASSERT_EQ(cuSimLaunchKernel(s0, &Gate::Hold, &hog), CUDA_SUCCESS);
  ASSERT_EQ(cuSimLaunchKernel(s1, &Gate::Hold, &hog), CUDA_SUCCESS);
  ASSERT_TRUE(hog.WaitForArrivals(2));
  ASSERT_EQ(cuMemsetD8Async(memory, 1, 16, s2), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(s2), CUDA_SUCCESS);
  hog.Open();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(KernelSlotsTest, EachDeviceHasItsOwn) {
  Gate hog, passed;
  passed.Open();
  const CUstream s0 = NewStream(), s1 = NewStream();
  ASSERT_EQ(cuSimLaunchKernel(s0, &Gate::Hold, &hog), CUDA_SUCCESS);
  ASSERT_EQ(cuSimLaunchKernel(s1, &Gate::Hold, &hog), CUDA_SUCCESS);
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuSimLaunchKernel(nullptr, &Gate::Hold, &passed), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(passed.arrived(), 1);
  hog.Open();
  EXPECT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simgpu_test
