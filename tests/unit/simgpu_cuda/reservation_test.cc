// Reserved address ranges: cost, alignment, requested addresses, wrong arguments and freeing.
#include <algorithm>

#include "tests/unit/simgpu_cuda/virtual_memory.h"

namespace simgpu_test {
namespace {

class ReservationTest : public VirtualMemoryTest {};

TEST_F(ReservationTest, CostsNoMemoryAndIsAligned) {
  CUdeviceptr range = 0;
  for (const size_t alignment : {size_t{0}, size_t{4096}, kPage, 64 * kPage}) {
    ASSERT_EQ(cuMemAddressReserve(&range, 1024 * kPage, alignment, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(range % std::max(alignment, kPage), 0u) << alignment;
    EXPECT_EQ(Used(), 0u);
    EXPECT_EQ(cuMemAddressFree(range, 1024 * kPage), CUDA_SUCCESS);
  }
}

TEST_F(ReservationTest, TheWishForAnAddressIsMetWhereItIsFree) {
  const CUdeviceptr range = NewRange(4 * kPage);
  CUdeviceptr other = 0;
  ASSERT_EQ(cuMemAddressReserve(&other, kPage, 0, range, 0), CUDA_SUCCESS);
  EXPECT_NE(other, range);
  EXPECT_EQ(cuMemAddressFree(other, kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, 4 * kPage), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressReserve(&other, 2 * kPage, 0, range, 0), CUDA_SUCCESS);
  EXPECT_EQ(other, range);
  EXPECT_EQ(cuMemAddressFree(other, 2 * kPage), CUDA_SUCCESS);
}

TEST_F(ReservationTest, WrongArguments) {
  CUdeviceptr range = 0;
  EXPECT_EQ(cuMemAddressReserve(nullptr, kPage, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&range, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&range, kPage + 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&range, kPage, 3 * kPage, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&range, kPage, 0, 4096, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&range, kPage, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&range, SIZE_MAX / kPage * kPage, 0, 0, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ReservationTest, IsFreedAsAWholeAndWithoutMappings) {
  const CUdeviceptr range = NewRange(2 * kPage);
  EXPECT_EQ(cuMemAddressFree(range, kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(range + kPage, kPage), CUDA_ERROR_INVALID_VALUE);
  MapNew(range + kPage, kPage);
  EXPECT_EQ(cuMemAddressFree(range, 2 * kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range + kPage, kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, 2 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, 2 * kPage), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ReservationTest, HoldsNothingToCopy) {
  const CUdeviceptr range = NewRange(kPage);
  char byte = 0;
  EXPECT_EQ(cuMemcpyDtoH_v2(&byte, range, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpy(range, reinterpret_cast<CUdeviceptr>(&byte), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD_v2(range, &byte, 1), CUDA_ERROR_INVALID_VALUE);
  unsigned type = 0;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(range, kPage), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simgpu_test
