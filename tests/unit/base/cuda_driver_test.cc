// The driver's table, with the simulated driver and with libraries that are not drivers.
#include "reconfig/base/cuda_driver.h"

#include <gtest/gtest.h>

namespace rewire {
namespace {

TEST(CudaDriver, LoadsEveryEntry) {
  CudaDriver driver{};
  ASSERT_EQ(CudaDriver::Load(REWIRE_TEST_LIBCUDA, &driver), "");
  int version = 0;
  EXPECT_EQ(driver.DriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_GE(version, 12000);
#define REWIRE_CUDA_ENTRY(member, name, symbol, version, arguments) \
  EXPECT_NE(driver.member, nullptr) << name;
#include "reconfig/base/cuda_driver.def"
#undef REWIRE_CUDA_ENTRY
}

TEST(CudaDriver, WorksEndToEnd) {
  CudaDriver driver{};
  ASSERT_EQ(CudaDriver::Load(REWIRE_TEST_LIBCUDA, &driver), "");
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  char text[8] = {};
  ASSERT_EQ(driver.Init(0), CUDA_SUCCESS);
  ASSERT_EQ(driver.DevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver.CtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(driver.MemAlloc(&memory, 8), CUDA_SUCCESS);
  ASSERT_EQ(driver.MemcpyHtoD(memory, "rewire", 7), CUDA_SUCCESS);
  ASSERT_EQ(driver.MemcpyDtoHAsync(text, memory, 7, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(driver.StreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_STREQ(text, "rewire");
  EXPECT_EQ(driver.Describe("cuMemFree", driver.MemFree(1)),
            "cuMemFree: CUDA_ERROR_INVALID_VALUE (1)");
  EXPECT_EQ(driver.Describe("x", static_cast<CUresult>(4242)), "x: unknown error (4242)");
  EXPECT_EQ(driver.DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}

TEST(CudaDriver, NamesMissingEntries) {
  CudaDriver driver{};
  const std::string absent = CudaDriver::Load("/nonexistent/libcuda.so.1", &driver);
  EXPECT_NE(absent.find("/nonexistent/libcuda.so.1"), std::string::npos);
  // In a library that is not a driver, every missing symbol is named.
  const std::string other = CudaDriver::Load("libc.so.6", &driver);
  EXPECT_NE(other.find("libc.so.6 lacks"), std::string::npos);
  EXPECT_NE(other.find("cuMemAlloc_v2"), std::string::npos);
  EXPECT_NE(other.find("cuEventRecord"), std::string::npos);
  EXPECT_EQ(other.find("cuMemCreate"), std::string::npos);
}

TEST(CudaDriver, ADriverWithoutTheOptionalEntriesLoads) {
  CudaDriver driver{};
  ASSERT_EQ(CudaDriver::Load(REWIRE_TEST_OLD_LIBCUDA, &driver), "");
  EXPECT_EQ(driver.Init(0), CUDA_SUCCESS);
  CUmemGenericAllocationHandle memory = 0;
  const CUmemAllocationProp properties{};
  EXPECT_EQ(driver.MemCreate(&memory, 1 << 21, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(driver.MemUnmap(1 << 21, 1 << 21), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace rewire
