// Physical memory: its properties, its accounting, and its release.
#include <cstring>
#include <utility>

#include "tests/unit/simgpu_cuda/virtual_memory.h"

namespace simgpu_test {
namespace {

class PhysicalMemoryTest : public VirtualMemoryTest {};

TEST_F(PhysicalMemoryTest, TheDeviceSaysThatItHasIt) {
  int value = 0;
  for (const auto attribute : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                               CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    ASSERT_EQ(cuDeviceGetAttribute(&value, attribute, 0), CUDA_SUCCESS);
    EXPECT_EQ(value, 1);
  }
  const CUmemAllocationProp properties = Properties();
  size_t granularity = 0;
  for (const auto option :
       {CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}) {
    ASSERT_EQ(cuMemGetAllocationGranularity(&granularity, &properties, option), CUDA_SUCCESS);
    EXPECT_EQ(granularity, kPage);
  }
}

TEST_F(PhysicalMemoryTest, WrongProperties) {
  std::pair<CUmemAllocationProp, CUresult> cases[7];
  for (auto& [properties, expected] : cases) properties = Properties();
  cases[0].first.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  cases[0].second = CUDA_ERROR_INVALID_VALUE;
  cases[1].first.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  cases[1].second = CUDA_ERROR_INVALID_VALUE;
  cases[2].first.win32HandleMetaData = cases;
  cases[2].second = CUDA_ERROR_INVALID_VALUE;
  cases[3].first.location.type = CU_MEM_LOCATION_TYPE_HOST;
  cases[3].second = CUDA_ERROR_NOT_SUPPORTED;
  cases[4].first.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  cases[4].second = CUDA_ERROR_NOT_SUPPORTED;
  cases[5].first.allocFlags.usage = 1;
  cases[5].second = CUDA_ERROR_NOT_SUPPORTED;
  cases[6].first.location.id = 2;
  cases[6].second = CUDA_ERROR_INVALID_DEVICE;
  for (const auto& [properties, expected] : cases) {
    CUmemGenericAllocationHandle handle = 0;
    size_t granularity = 0;
    EXPECT_EQ(cuMemCreate(&handle, kPage, &properties, 0), expected);
    EXPECT_EQ(
        cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        expected);
  }
}

TEST_F(PhysicalMemoryTest, WrongArguments) {
  const CUmemAllocationProp properties = Properties();
  CUmemAllocationProp read{};
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuMemCreate(&handle, 0, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, kPage + 4096, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, kPage, &properties, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, kPage, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(nullptr, kPage, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease(12345), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&read, 12345), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PhysicalMemoryTest, KeepsItsProperties) {
  CUmemAllocationProp read{};
  const CUmemGenericAllocationHandle handle = NewPhysical(kPage, kDescriptor);
  ASSERT_EQ(cuMemGetAllocationPropertiesFromHandle(&read, handle), CUDA_SUCCESS);
  EXPECT_EQ(read.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(read.requestedHandleTypes, kDescriptor);
  EXPECT_EQ(read.location.id, 0);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PhysicalMemoryTest, CountsAndRunsOutTogetherWithAllocations) {
  const CUmemAllocationProp properties = Properties();
  const CUmemGenericAllocationHandle physical = NewPhysical(20 * kPage);
  EXPECT_EQ(Used(), 20 * kPage);
  CUmemGenericAllocationHandle more = 0;
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemCreate(&more, 13 * kPage, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc_v2(&memory, 12 * kPage + 1), CUDA_ERROR_OUT_OF_MEMORY);
  memory = NewMemory(12 * kPage);
  EXPECT_EQ(Free(), 0u);
  EXPECT_EQ(cuMemCreate(&more, kPage, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemRelease(physical), CUDA_SUCCESS);
  more = NewPhysical(kPage);
  EXPECT_EQ(cuMemRelease(more), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_SUCCESS);
}

TEST_F(PhysicalMemoryTest, GoesWithTheLastHandleAndTheLastMapping) {
  const CUdeviceptr range = NewRange(2 * kPage);
  const CUmemGenericAllocationHandle handle = NewPhysical(kPage);
  ASSERT_EQ(cuMemMap(range, kPage, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(range + kPage, kPage, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(range, kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);  // released
  EXPECT_EQ(cuMemUnmap(range, kPage), CUDA_SUCCESS);
  EXPECT_EQ(Used(), kPage);
  CUmemGenericAllocationHandle again = 0;
  const auto inside = reinterpret_cast<void*>(range + kPage + 12345);
  ASSERT_EQ(cuMemRetainAllocationHandle(&again, inside), CUDA_SUCCESS);
  EXPECT_EQ(again, handle);
  EXPECT_EQ(cuMemUnmap(range + kPage, kPage), CUDA_SUCCESS);
  EXPECT_EQ(Used(), kPage);
  EXPECT_EQ(cuMemRetainAllocationHandle(&again, inside), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(cuMemAddressFree(range, 2 * kPage), CUDA_SUCCESS);
}

TEST_F(PhysicalMemoryTest, NeedsNoContextAndOutlivesOne) {
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  const CUmemGenericAllocationHandle handle = NewPhysical(kPage);
  ASSERT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  const CUdeviceptr range = NewRange(kPage);
  ASSERT_EQ(cuMemMap(range, kPage, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(Grant(range, kPage), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(Used(), kPage);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  UnmapAndFree(range, kPage);
}

TEST_F(PhysicalMemoryTest, IsFreshWhereItWasFreed) {
  const CUdeviceptr range = NewRange(kPage);
  char seen[8] = {};
  for (int round = 0; round < 2; ++round) {
    MapNew(range, kPage);
    ASSERT_EQ(Grant(range, kPage), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoH_v2(seen, range, 8), CUDA_SUCCESS);
    EXPECT_STREQ(seen, "");
    ASSERT_EQ(cuMemcpyHtoD_v2(range, "dirty", 6), CUDA_SUCCESS);
    ASSERT_EQ(cuMemUnmap(range, kPage), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuMemAddressFree(range, kPage), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simgpu_test
