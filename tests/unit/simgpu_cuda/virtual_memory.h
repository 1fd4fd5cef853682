// Shared parts of the tests of virtual memory management: properties, access, and the fixture.
#pragma once

#include "tests/unit/simgpu_cuda/device_test.h"

namespace simgpu_test {

constexpr size_t kPage = size_t{2} << 20;  // the device's granularity
constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

inline CUmemAllocationProp Properties(CUmemAllocationHandleType shareable = CU_MEM_HANDLE_TYPE_NONE,
                                      int device = 0) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = shareable;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

inline CUresult Grant(CUdeviceptr pointer, size_t size,
                      CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                      int device = 0) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return cuMemSetAccess(pointer, size, &access, 1);
}

// Each test ends with all memory freed.
class VirtualMemoryTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    before_ = Free();
  }
  void TearDown() override {
    EXPECT_EQ(Free(), before_);
    DeviceTest::TearDown();
  }

  static size_t Free() {
    size_t free = 0;
    EXPECT_EQ(cuMemGetInfo_v2(&free, nullptr), CUDA_SUCCESS);
    return free;
  }
  [[nodiscard]] size_t Used() const { return before_ - Free(); }

  static CUmemGenericAllocationHandle NewPhysical(
      size_t size, CUmemAllocationHandleType shareable = CU_MEM_HANDLE_TYPE_NONE) {
    const CUmemAllocationProp properties = Properties(shareable);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, size, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  static CUdeviceptr NewRange(size_t size) {
    CUdeviceptr range = 0;
    EXPECT_EQ(cuMemAddressReserve(&range, size, 0, 0, 0), CUDA_SUCCESS);
    return range;
  }
  // Maps new physical memory at this address, without access.
  static void MapNew(CUdeviceptr at, size_t size) {
    const CUmemGenericAllocationHandle handle = NewPhysical(size);
    EXPECT_EQ(cuMemMap(at, size, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  }
  static void UnmapAndFree(CUdeviceptr range, size_t size) {
    EXPECT_EQ(cuMemUnmap(range, size), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAddressFree(range, size), CUDA_SUCCESS);
  }

 private:
  size_t before_ = 0;
};

}  // namespace simgpu_test
