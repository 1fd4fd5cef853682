// Waits for work on a device with a deadline, which the driver's own waits do not have. A copy by
// Rewire that takes longer than kDevicePatience shows that the device does not work any more.
// Thread-safe; blocks the caller. Needs libc and libstdc++ only.
#pragma once

#include <string>

#include "reconfig/base/clock.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire {

inline constexpr Duration kDevicePatience = seconds(30);

// Returns CUDA_ERROR_NOT_READY if the work has not ended after `patience`. The work then continues,
// and its memory must outlive it.
CUresult WaitForStream(const CudaDriver& driver, CUstream stream, Duration patience);
CUresult WaitForEvent(const CudaDriver& driver, CUevent event, Duration patience);

// Formats "copy of 512 bytes to device memory: timed out after 30000 ms", or the driver's error.
std::string DescribeWait(const CudaDriver& driver, const std::string& operation, CUresult result,
                         Duration patience);

}  // namespace rewire
