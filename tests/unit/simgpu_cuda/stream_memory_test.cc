// Streams that write words and wait for them, and virtual time, which passes with the words from
// one process to another.
#include "tests/unit/simgpu_cuda/child_process.h"
#include "tests/unit/simgpu_cuda/device_test.h"

namespace simgpu_test {
namespace {

class StreamMemoryTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    word_ = NewMemory(64);
    ASSERT_EQ(cuMemsetD8_v2(word_, 0, 64), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);  // the host's fill is asynchronous
  }
  CUdeviceptr word_ = 0;
};

TEST_F(StreamMemoryTest, AStreamWaitsForWhatAnotherWrites) {
  const CUstream waits = NewStream();
  const CUstream writes = NewStream();
  ASSERT_EQ(cuStreamWaitValue64_v2(waits, word_, 5, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(waits), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuStreamWriteValue64_v2(writes, word_, 4, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(writes), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(waits), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuStreamWriteValue64_v2(writes, word_, 6, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(waits), CUDA_SUCCESS);
}

TEST_F(StreamMemoryTest, EachConditionHasItsMeaning) {
  const CUstream stream = NewStream();
  ASSERT_EQ(cuStreamWriteValue64_v2(stream, word_, 6, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitValue64_v2(stream, word_, 6, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitValue64_v2(stream, word_, 2, CU_STREAM_WAIT_VALUE_AND), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitValue64_v2(stream, word_, 1, CU_STREAM_WAIT_VALUE_NOR), CUDA_SUCCESS);
  // UINT64_MAX is older in a cyclic count.
  EXPECT_EQ(cuStreamWaitValue64_v2(stream, word_, UINT64_MAX, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(StreamMemoryTest, AWaitSeesWhatTheHostCopies) {
  const CUstream stream = NewStream();
  ASSERT_EQ(cuStreamWaitValue64_v2(stream, word_ + 8, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  const uint64_t one = 1;
  ASSERT_EQ(cuMemcpyHtoD_v2(word_ + 8, &one, sizeof one), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(StreamMemoryTest, WrongWordsAreRefused) {
  const CUstream stream = NewStream();
  EXPECT_EQ(cuStreamWaitValue64_v2(stream, word_ + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue64_v2(stream, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue64_v2(stream, 4096, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue64_v2(stream, word_, 1, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue64_v2(stream, word_, 1, 2), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamMemoryTest, CopiesAndAllocationsAreCounted) {
  cuSimCounts before{}, after{};
  ASSERT_EQ(cuSimGetCounts(&before), CUDA_SUCCESS);
  const CUdeviceptr memory = NewMemory(1000);
  ASSERT_EQ(cuMemcpyDtoD_v2(memory, word_, 64), CUDA_SUCCESS);
  uint64_t read = 0;
  ASSERT_EQ(cuMemcpyDtoH_v2(&read, memory, sizeof read), CUDA_SUCCESS);
  ASSERT_EQ(cuSimGetCounts(&after), CUDA_SUCCESS);
  EXPECT_EQ(after.allocations, before.allocations + 1);
  EXPECT_EQ(after.local_bytes, before.local_bytes + 64);
  EXPECT_EQ(after.peer_bytes, before.peer_bytes);
}

TEST_F(StreamMemoryTest, VirtualTimeIsWhatCopiesAndKernelsTake) {
  Child child({"clock"}, {"SIMGPU_LOCAL_MBPS=1000"});
  EXPECT_EQ(child.ReadLine(), "copy 0.100 kernel 0.250 both 0.350");
  EXPECT_EQ(child.Wait(), 0);
}

TEST_F(StreamMemoryTest, VirtualTimeGoesWithAWordToAnotherProcess) {
  Child waits({"clock_wait"}, {"SIMGPU_PEER_MBPS=1000"});
  const std::string handle = waits.ReadLine();
  Child writes({"clock_write", handle}, {"SIMGPU_PEER_MBPS=1000"});
  EXPECT_EQ(writes.Wait(), 0);
  EXPECT_EQ(waits.ReadLine(), "123064");
  EXPECT_EQ(waits.Wait(), 0);
}

}  // namespace
}  // namespace simgpu_test
