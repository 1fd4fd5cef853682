// Physical memory at reserved addresses: mapping, access, and use.
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/simgpu_cuda/virtual_memory.h"

namespace simgpu_test {
namespace {

constexpr CUmemLocation Location(int device) { return {CU_MEM_LOCATION_TYPE_DEVICE, device}; }

class MappingTest : public VirtualMemoryTest {
 protected:
  // Returns the result of the hash kernel's launch.
  static CUresult Hash(CUdeviceptr memory, size_t size, CUdeviceptr sum) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    const char* text = ".version 7.0\n.visible .entry rewire_content_hash(\n";
    EXPECT_EQ(cuModuleLoadData(&module, text), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetFunction(&function, module, "rewire_content_hash"), CUDA_SUCCESS);
    uint64_t start = 0;
    void* arguments[] = {&memory, &size, &start, &sum};
    const CUresult result =
        cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    return result;
  }
};

TEST_F(MappingTest, WrongArguments) {
  const CUdeviceptr range = NewRange(4 * kPage);
  const CUmemGenericAllocationHandle handle = NewPhysical(2 * kPage);
  EXPECT_EQ(cuMemMap(range, 0, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range, kPage + 4096, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range + 4096, kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range, kPage, kPage, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range, kPage, 0, handle, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range, kPage, 0, handle + 1, 0), CUDA_ERROR_INVALID_VALUE);
  // Larger than the memory.
  EXPECT_EQ(cuMemMap(range, 3 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, 4 * kPage), CUDA_SUCCESS);
}

TEST_F(MappingTest, GoesWhereAddressesAreReservedAndFree) {
  const CUdeviceptr range = NewRange(3 * kPage);
  const CUmemGenericAllocationHandle handle = NewPhysical(2 * kPage);
  EXPECT_EQ(cuMemMap(range - kPage, 2 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range + 2 * kPage, 2 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemMap(range + kPage, 2 * kPage, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(range, 2 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range + 2 * kPage, kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(range + kPage, 2 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, 3 * kPage), CUDA_SUCCESS);
}

TEST_F(MappingTest, IsUnmappedAsAWhole) {
  const CUdeviceptr range = NewRange(5 * kPage);
  MapNew(range, 2 * kPage);
  MapNew(range + 2 * kPage, kPage);
  MapNew(range + 4 * kPage, kPage);
  EXPECT_EQ(cuMemUnmap(range, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range, kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range + kPage, kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range + kPage, 2 * kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range, 5 * kPage), CUDA_ERROR_INVALID_VALUE);  // across the gap
  EXPECT_EQ(Used(), 4 * kPage);
  ASSERT_EQ(cuMemUnmap(range, 3 * kPage), CUDA_SUCCESS);  // two adjoining mappings
  EXPECT_EQ(Used(), kPage);
  EXPECT_EQ(cuMemUnmap(range, 3 * kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range + 4 * kPage, kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, 5 * kPage), CUDA_SUCCESS);
  const CUdeviceptr allocated = NewMemory(kPage);
  EXPECT_EQ(cuMemUnmap(allocated, kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(allocated), CUDA_SUCCESS);
}

TEST_F(MappingTest, IsNotAccessibleBeforeAccessIsSet) {
  const CUdeviceptr range = NewRange(kPage), sum = NewMemory(8);
  char byte = 1;
  const auto host = reinterpret_cast<CUdeviceptr>(&byte);
  MapNew(range, kPage);
  const auto expect = [&](bool readable, bool writable) {
    const CUresult read = readable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    const CUresult write = writable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(cuMemcpyHtoD_v2(range, &byte, 1), write);
    EXPECT_EQ(cuMemcpyAsync(range, host, 1, nullptr), write);
    EXPECT_EQ(cuMemsetD8_v2(range, 1, 1), write);
    EXPECT_EQ(Hash(sum, 8, range), writable ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuMemcpyDtoH_v2(&byte, range, 1), read);
    EXPECT_EQ(cuMemcpyDtoD_v2(sum, range, 1), read);
    EXPECT_EQ(Hash(range, kPage, sum), readable ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
  };
  expect(false, false);
  ASSERT_EQ(Grant(range, kPage, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  expect(true, false);
  ASSERT_EQ(Grant(range, kPage), CUDA_SUCCESS);
  expect(true, true);
  ASSERT_EQ(Grant(range, kPage, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_SUCCESS);
  expect(false, false);
  // The next mapping at these addresses begins without access.
  ASSERT_EQ(Grant(range, kPage), CUDA_SUCCESS);
  ASSERT_EQ(cuMemUnmap(range, kPage), CUDA_SUCCESS);
  MapNew(range, kPage);
  expect(false, false);
  UnmapAndFree(range, kPage);
  EXPECT_EQ(cuMemFree_v2(sum), CUDA_SUCCESS);
}

TEST_F(MappingTest, AccessIsTheDevicesOwn) {
  const CUdeviceptr range = NewRange(kPage);
  MapNew(range, kPage);
  ASSERT_EQ(Grant(range, kPage, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 1), CUDA_SUCCESS);
  unsigned long long flags = 9;
  CUmemLocation location = Location(0);
  ASSERT_EQ(cuMemGetAccess(&flags, &location, range + 5), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE});
  location = Location(1);
  ASSERT_EQ(cuMemGetAccess(&flags, &location, range + 5), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  EXPECT_EQ(cuMemsetD8_v2(range, 1, 1), CUDA_ERROR_INVALID_VALUE);
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8_v2(range, 1, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);  // the copy below runs on another device
  ASSERT_EQ(cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  const CUdeviceptr here = NewMemory(1);
  EXPECT_EQ(cuMemcpyPeerAsync(here, context_, range, other, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyPeerAsync(here, context_, range, context_, 1, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(here), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  UnmapAndFree(range, kPage);
}

TEST_F(MappingTest, WrongAccess) {
  const CUdeviceptr range = NewRange(4 * kPage);
  MapNew(range, 2 * kPage);
  const CUmemAccessDesc access{Location(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(cuMemSetAccess(range, 2 * kPage, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetAccess(range, 2 * kPage, &access, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Grant(range, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Grant(range, kPage), CUDA_ERROR_INVALID_VALUE);      // a part
  EXPECT_EQ(Grant(range, 3 * kPage), CUDA_ERROR_INVALID_VALUE);  // partly unmapped
  EXPECT_EQ(Grant(range, 2 * kPage, static_cast<CUmemAccess_flags>(2)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Grant(range, 2 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READ, 2), CUDA_ERROR_INVALID_DEVICE);
  const CUmemAccessDesc host{{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
  EXPECT_EQ(cuMemSetAccess(range, 2 * kPage, &host, 1), CUDA_ERROR_NOT_SUPPORTED);
  unsigned long long flags = 0;
  const CUmemLocation here = Location(0), nowhere = Location(2);
  EXPECT_EQ(cuMemGetAccess(&flags, &here, range + 2 * kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetAccess(&flags, &nowhere, range), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMemsetD8_v2(range, 0, 1), CUDA_ERROR_INVALID_VALUE);  // nothing took effect
  EXPECT_EQ(cuMemUnmap(range, 2 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, 4 * kPage), CUDA_SUCCESS);
}

TEST_F(MappingTest, WorkGoesAcrossMappingsThatAdjoin) {
  const CUdeviceptr range = NewRange(3 * kPage), flat = NewMemory(3 * kPage), sums = NewMemory(16);
  for (int i = 0; i < 3; ++i) MapNew(range + static_cast<size_t>(i) * kPage, kPage);
  ASSERT_EQ(Grant(range, 2 * kPage), CUDA_SUCCESS);
  std::vector<unsigned char> bytes(3 * kPage), back(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i % 251);
  EXPECT_EQ(cuMemcpyHtoD_v2(range, bytes.data(), bytes.size()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8_v2(range, 0, 3 * kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Hash(range, 3 * kPage, sums), CUDA_ERROR_ILLEGAL_ADDRESS);  // the third has no access
  ASSERT_EQ(Grant(range, 3 * kPage), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8_v2(range, 7, 3 * kPage), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH_v2(back.data(), range + kPage - 1, 2), CUDA_SUCCESS);
  EXPECT_EQ(back[0] + back[1], 14);
  ASSERT_EQ(cuMemcpyHtoD_v2(range, bytes.data(), bytes.size()), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoD_v2(flat, range, bytes.size()), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH_v2(back.data(), flat, bytes.size()), CUDA_SUCCESS);
  EXPECT_TRUE(back == bytes);
  ASSERT_EQ(cuMemsetD8_v2(sums, 0, 16), CUDA_SUCCESS);
  ASSERT_EQ(Hash(range, 3 * kPage, sums), CUDA_SUCCESS);
  ASSERT_EQ(Hash(flat, 3 * kPage, sums + 8), CUDA_SUCCESS);
  uint64_t hashes[2] = {};
  ASSERT_EQ(cuMemcpyDtoH_v2(hashes, sums, 16), CUDA_SUCCESS);
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_NE(hashes[0], 0u);
  EXPECT_EQ(cuMemcpyHtoD_v2(range + 1, bytes.data(), bytes.size()), CUDA_ERROR_INVALID_VALUE);
  UnmapAndFree(range, 3 * kPage);
  EXPECT_EQ(cuMemFree_v2(flat), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(sums), CUDA_SUCCESS);
}

TEST_F(MappingTest, TwoMappingsOfOneMemorySeeTheSameBytes) {
  const CUdeviceptr range = NewRange(2 * kPage);
  const CUmemGenericAllocationHandle handle = NewPhysical(kPage);
  ASSERT_EQ(cuMemMap(range, kPage, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(range + kPage, kPage, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  ASSERT_EQ(Grant(range, 2 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(Used(), kPage);
  char seen[6] = {};
  ASSERT_EQ(cuMemcpyHtoD_v2(range + 100, "hello", 6), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH_v2(seen, range + kPage + 100, 6), CUDA_SUCCESS);
  EXPECT_STREQ(seen, "hello");
  UnmapAndFree(range, 2 * kPage);
}

TEST_F(MappingTest, PointersAreKnownByTheirMapping) {
  const CUdeviceptr range = NewRange(3 * kPage);
  MapNew(range, kPage);
  MapNew(range + kPage, 2 * kPage);
  CUdeviceptr base = 0;
  size_t size = 0;
  ASSERT_EQ(cuMemGetAddressRange_v2(&base, &size, range + kPage + 5), CUDA_SUCCESS);
  EXPECT_EQ(base, range + kPage);
  EXPECT_EQ(size, 2 * kPage);
  unsigned type = 0;
  int ordinal = -1;
  bool legacy_ipc = true;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* data[] = {&type, &ordinal, &legacy_ipc};
  ASSERT_EQ(cuPointerGetAttributes(3, attributes, data, range + 5), CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(ordinal, 0);
  EXPECT_FALSE(legacy_ipc);
  CUipcMemHandle handle{};
  EXPECT_EQ(cuIpcGetMemHandle(&handle, range), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(range), CUDA_ERROR_INVALID_VALUE);
  UnmapAndFree(range, 3 * kPage);
  EXPECT_EQ(cuMemGetAddressRange_v2(&base, &size, range), CUDA_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace simgpu_test
