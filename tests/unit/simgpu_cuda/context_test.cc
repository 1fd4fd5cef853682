// Devices, contexts, peers, error names, cuGetProcAddress.
#include <cstring>
#include <string>

#include "tests/unit/simgpu_cuda/device_test.h"

namespace simgpu_test {
namespace {

class ContextTest : public DeviceTest {};

TEST_F(ContextTest, Devices) {
  int count = 0, value = 0;
  CUdevice device = -1;
  char text[64] = {}, bus0[16] = {}, bus1[16] = {};
  CUuuid uuid0{}, uuid1{};
  size_t bytes = 0;
  ASSERT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cuDeviceGet(&device, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGetName(text, sizeof text, 0), CUDA_SUCCESS);
  EXPECT_NE(std::string(text).find("Simulated"), std::string::npos);
  ASSERT_EQ(cuDeviceGetPCIBusId(bus0, sizeof bus0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGetPCIBusId(bus1, sizeof bus1, 1), CUDA_SUCCESS);
  EXPECT_STRNE(bus0, bus1);
  ASSERT_EQ(cuDeviceGetByPCIBusId(&device, bus1), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cuDeviceGetByPCIBusId(&device, "nonsense"), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuDeviceGetUuid_v2(&uuid0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGetUuid_v2(&uuid1, 1), CUDA_SUCCESS);
  EXPECT_NE(std::memcmp(&uuid0, &uuid1, sizeof uuid0), 0);
  EXPECT_EQ(cuDeviceTotalMem_v2(&bytes, 0), CUDA_SUCCESS);
  EXPECT_EQ(bytes, size_t{64} << 20);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, 32);
  EXPECT_EQ(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ContextTest, PrimaryIsCountedAndEndsWithTheLastRelease) {
  CUcontext a = nullptr, b = nullptr;
  unsigned flags = 0;
  int active = -1;
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_EQ(cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&a, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&b, 1), CUDA_SUCCESS);
  EXPECT_EQ(a, b);
  ASSERT_EQ(cuCtxPushCurrent_v2(a), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
  CUdevice device = -1;
  EXPECT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  ASSERT_EQ(cuDevicePrimaryCtxReset_v2(1), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxGetDevice(&device), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUcontext popped = nullptr;
  ASSERT_EQ(cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, a);
  EXPECT_EQ(cuCtxPushCurrent_v2(a), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_ERROR_INVALID_CONTEXT);  // a primary is released
}

TEST_F(ContextTest, TheStackOfAThread) {
  CUcontext other = nullptr, current = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, other);
  ASSERT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);  // popped as well
  ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context_);
  ASSERT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxPopCurrent_v2(&current), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSetCurrent(other), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxCreate_v2(&other, 0, 9), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuCtxCreate_v2(&other, 0x10000, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ContextTest, Peers) {
  int can = -1;
  ASSERT_EQ(cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  ASSERT_EQ(cuDeviceCanAccessPeer(&can, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(cuDeviceCanAccessPeer(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
  CUcontext other = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDisablePeerAccess(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxDisablePeerAccess(other), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(ContextTest, ErrorNames) {
  const char* text = nullptr;
  ASSERT_EQ(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  ASSERT_EQ(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST_F(ContextTest, EveryListedEntryIsExported) {
  const char* const names[] = {
#define SIMGPU_ENTRY(name, version, symbol) #name,
#include "tests/simgpu/cuda/entries.def"
#undef SIMGPU_ENTRY
  };
  for (const char* name : names) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    EXPECT_EQ(cuGetProcAddress_v2(name, &function, 13000, 0, &status), CUDA_SUCCESS) << name;
    EXPECT_NE(function, nullptr) << name;
  }
}

TEST_F(ContextTest, ProcAddressGivesTheAbiOfTheVersion) {
  void *old_abi = nullptr, *new_abi = nullptr;
  CUdriverProcAddressQueryResult status{};
  ASSERT_EQ(cuGetProcAddress_v2("cuMemcpyBatchAsync", &old_abi, 12080, 0, &status), CUDA_SUCCESS);
  ASSERT_EQ(cuGetProcAddress_v2("cuMemcpyBatchAsync", &new_abi, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(old_abi, reinterpret_cast<void*>(&cuMemcpyBatchAsync));
  EXPECT_NE(old_abi, new_abi);
  EXPECT_EQ(cuGetProcAddress_v2("cuMemcpyBatchAsync", &old_abi, 12000, 0, &status),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(old_abi, nullptr);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cuGetProcAddress_v2("cuTexRefCreate", &old_abi, 13000, 0, &status),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("cuTexRefCreate"), std::string::npos);
  EXPECT_EQ(cuGetProcAddress_v2("cuMemcpy", &old_abi, 13000,
                                CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGetProcAddress_v2(nullptr, &old_abi, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace simgpu_test
