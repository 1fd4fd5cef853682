// Waits for a device with a deadline. The test decides when the driver's work ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reconfig/base/cuda_driver.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

int queries_until_done = 0;

CudaDriver Driver() {
  CudaDriver driver = {};
  driver.StreamQuery = [](CUstream) {
    return --queries_until_done <= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  driver.EventQuery = [](CUevent) { return CUDA_ERROR_INVALID_VALUE; };
  driver.GetErrorName = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_INVALID_VALUE";
    return CUDA_SUCCESS;
  };
  return driver;
}

TEST(DeviceWaitTest, EndsWithTheWorkAndOtherwiseAtTheDeadline) {
  const CudaDriver driver = Driver();
  queries_until_done = 300;
  EXPECT_EQ(WaitForStream(driver, nullptr, seconds(20)), CUDA_SUCCESS);
  queries_until_done = 1 << 30;
  EXPECT_EQ(WaitForStream(driver, nullptr, milliseconds(5)), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(DescribeWait(driver, "copy of 512 bytes to device memory", CUDA_ERROR_NOT_READY,
                         milliseconds(5)),
            "copy of 512 bytes to device memory: timed out after 5 ms (the device did not complete "
            "its work)");
}

TEST(DeviceWaitTest, DriverErrorIsNotTimeout) {
  const CudaDriver driver = Driver();
  const CUresult result = WaitForEvent(driver, nullptr, seconds(20));
  EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(DescribeWait(driver, "event", result, seconds(20)),
              HasSubstr("CUDA_ERROR_INVALID_VALUE"));
}

}  // namespace
}  // namespace rewire
