// Allocation, accounting, host memory, pointers, copies and their errors.
#include <array>
#include <cstring>
#include <vector>

#include "tests/unit/simgpu_cuda/device_test.h"

namespace simgpu_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class MemoryTest : public DeviceTest {
 protected:
  static size_t Free() {
    size_t free = 0, total = 0;
    EXPECT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    EXPECT_EQ(total, 64 * kMiB);
    return free;
  }
};

TEST_F(MemoryTest, CountsAndRunsOut) {
  EXPECT_EQ(Free(), 64 * kMiB);
  const CUdeviceptr a = NewMemory(40 * kMiB);
  EXPECT_EQ(Free(), 24 * kMiB);
  CUdeviceptr b = 0;
  EXPECT_EQ(cuMemAlloc_v2(&b, 25 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc_v2(&b, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc_v2(&b, 24 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Free(), 0u);
  EXPECT_EQ(cuMemFree_v2(a), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(b), CUDA_SUCCESS);
  EXPECT_EQ(Free(), 64 * kMiB);
}

TEST_F(MemoryTest, FragmentedMemoryServesLargeAllocation) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(NewMemory(kMiB));
  for (size_t i = 0; i < 64; i += 2) ASSERT_EQ(cuMemFree_v2(blocks[i]), CUDA_SUCCESS);
  const CUdeviceptr large = NewMemory(32 * kMiB);
  EXPECT_NE(large, 0u);
  EXPECT_EQ(Free(), 0u);
}

TEST_F(MemoryTest, ContextDestructionFreesMemory) {
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  const CUdeviceptr memory = NewMemory(kMiB);
  ASSERT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(Free(), 64 * kMiB);
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, RejectsInvalidAllocationAndFree) {
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc_v2(&memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(12345), CUDA_ERROR_INVALID_VALUE);
  memory = NewMemory(100);
  EXPECT_EQ(cuMemFree_v2(memory + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, CopiesStayInsideTheirMemory) {
  std::array<char, 64> host{};
  const CUdeviceptr memory = NewMemory(64);
  EXPECT_EQ(cuMemcpyHtoD_v2(memory, host.data(), 64), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyHtoD_v2(memory, host.data(), 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD_v2(memory + 1, host.data(), 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH_v2(host.data(), 4096, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH_v2(nullptr, memory, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoD_v2(memory, reinterpret_cast<CUdeviceptr>(host.data()), 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8_v2(memory, 0, 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32Async(memory + 1, 0, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32Async(memory, 0, SIZE_MAX, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD_v2(4096, host.data(), 0), CUDA_SUCCESS);  // nothing to copy
}

TEST_F(MemoryTest, GenericAndPeerCopies) {
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
  const CUdeviceptr there = NewMemory(8);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  const CUdeviceptr here = NewMemory(8);
  char out[8] = {};
  ASSERT_EQ(cuMemcpy(here, reinterpret_cast<CUdeviceptr>("rewired"), 8), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyPeerAsync(there, other, here, context_, 8, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(out), there, 8, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_STREQ(out, "rewired");
  ASSERT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyPeerAsync(there, other, here, context_, 8, nullptr),
            CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(MemoryTest, BatchedCopies) {
  const CUstream stream = NewStream();
  CUdeviceptr to[2] = {NewMemory(16), NewMemory(16)};
  char host[16] = "batch";
  char back[16] = {};
  CUdeviceptr from[2] = {reinterpret_cast<CUdeviceptr>(host), to[0]};
  size_t sizes[2] = {16, 16}, index = 0, failed = 0;
  CUmemcpyAttributes attributes{};
  EXPECT_EQ(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &index, 1, &failed, stream),
            CUDA_ERROR_INVALID_VALUE);  // no access order
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  EXPECT_EQ(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &index, 1, &failed, nullptr),
            CUDA_ERROR_INVALID_VALUE);  // not in the default stream
  ASSERT_EQ(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &index, 1, &failed, stream),
            CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoHAsync_v2(back, to[1], 16, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_STREQ(back, "batch");
  sizes[1] = 17;
  EXPECT_EQ(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &index, 1, &failed, stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, 1u);
}

TEST_F(MemoryTest, HostMemory) {
  void* host = nullptr;
  EXPECT_EQ(cuMemHostAlloc(&host, 64, 0x80), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostAlloc(&host, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAllocHost_v2(&host, 64), CUDA_SUCCESS);
  CUdeviceptr device = 0;
  ASSERT_EQ(cuMemHostGetDevicePointer_v2(&device, host, 0), CUDA_SUCCESS);
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(host));
  EXPECT_EQ(Free(), 64 * kMiB);
  EXPECT_EQ(cuMemHostUnregister(host), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ASSERT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
  std::array<char, 256> own{};
  ASSERT_EQ(cuMemHostRegister_v2(own.data() + 8, 200, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostRegister_v2(own.data() + 207, 8, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostRegister_v2(own.data() + 4, 8, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  ASSERT_EQ(cuMemHostUnregister(own.data() + 8), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(own.data() + 8), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(MemoryTest, PointerAttributes) {
  const CUdeviceptr memory = NewMemory(1000);
  unsigned type = 0;
  ASSERT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 999),
            CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 1000),
            CUDA_ERROR_INVALID_VALUE);
  size_t size = 0;
  CUdeviceptr start = 0, base = 0;
  int ordinal = 7;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* data[] = {&size, &start, &ordinal};
  ASSERT_EQ(cuPointerGetAttributes(3, attributes, data, memory + 5), CUDA_SUCCESS);
  EXPECT_EQ(size, 1000u);
  EXPECT_EQ(start, memory);
  EXPECT_EQ(ordinal, 0);
  // Unknown addresses are no error here, as documented.
  EXPECT_EQ(cuPointerGetAttributes(3, attributes, data, 4096), CUDA_SUCCESS);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(ordinal, -2);
  ASSERT_EQ(cuMemGetAddressRange_v2(&base, &size, memory + 1), CUDA_SUCCESS);
  EXPECT_EQ(base, memory);
  EXPECT_EQ(cuMemGetAddressRange_v2(&base, &size, 4096), CUDA_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace simgpu_test
