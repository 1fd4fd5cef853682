// Registered device memory that was freed, or reallocated at its address.
#include "reconfig/state/stream/allocation.h"

#include <gtest/gtest.h>

#include "tests/unit/peer/device.h"

namespace rewire::state {
namespace {

TEST(AllocationTest, FreedMemoryAndMemoryAllocatedAnewAreNotTheSame) {
  const CUcontext context = UseFirstDevice();
  ASSERT_NE(context, nullptr);
  std::string error;
  const CudaDriver& driver = *CudaDriver::Get(&error);
  CUdeviceptr memory = 0;
  ASSERT_EQ(driver.MemAlloc(&memory, 1 << 20), CUDA_SUCCESS);
  const StatePlace place = {MemoryKind::kDevice, reinterpret_cast<char*>(memory), context};
  const uint64_t first = AllocationOf(place);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(AllocationOf(place), first);
  EXPECT_EQ(AllocationOf(place.At(4096)), first);
  ASSERT_EQ(driver.MemFree(memory), CUDA_SUCCESS);
  EXPECT_NE(AllocationOf(place), first);
  // The result is the same whether or not the driver returns the same address.
  ASSERT_EQ(driver.MemAlloc(&memory, 1 << 20), CUDA_SUCCESS);
  EXPECT_NE(AllocationOf(place), first);
}

TEST(AllocationTest, HostMemoryHasNone) {
  char byte = 0;
  EXPECT_EQ(AllocationOf({MemoryKind::kHost, &byte, nullptr}), 0u);
}

}  // namespace
}  // namespace rewire::state
