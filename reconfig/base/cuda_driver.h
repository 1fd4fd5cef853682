// The CUDA driver's functions, resolved at run time: Rewire does not link against CUDA. For every
// room that calls the driver. Also waits for work on a device with a deadline, which the driver's
// own waits do not have. Thread-safe. Needs libc and libstdc++ only.
#pragma once

#include <string>

#include "reconfig/abi/cuda_types.h"
#include "reconfig/base/clock.h"

namespace rewire {

// One member per row of cuda_driver.def, with the driver's name without "cu". Every member of a
// loaded table is callable; an optional function that the driver lacks returns
// CUDA_ERROR_NOT_SUPPORTED. Loading does not call Init. Immutable.
struct CudaDriver {
#define REWIRE_CUDA_ENTRY(member, name, symbol, version, arguments) CUresult(*member) arguments;
#include "reconfig/base/cuda_driver.def"
#undef REWIRE_CUDA_ENTRY

  // Returns the driver of this process, from REWIRE_CUDA_LIBRARY. The first call loads the driver,
  // which is never unloaded. Returns null if it cannot be loaded or lacks an entry; see *error.
  [[nodiscard]] static const CudaDriver* Get(std::string* error);

  // Loads a table from the named library into *driver. Returns an empty string, or the error.
  [[nodiscard]] static std::string Load(const std::string& library, CudaDriver* driver);

  // Formats as "cuEventRecord: CUDA_ERROR_INVALID_HANDLE (400)".
  [[nodiscard]] std::string Describe(const char* call, CUresult result) const;
};

// A copy by Rewire that takes longer shows that the device does not work any more.
inline constexpr Duration kDevicePatience = seconds(30);

// Both block the caller. They return CUDA_ERROR_NOT_READY if the work has not ended after
// `patience`. The work then continues, and its memory must outlive it.
CUresult WaitForStream(const CudaDriver& driver, CUstream stream, Duration patience);
CUresult WaitForEvent(const CudaDriver& driver, CUevent event, Duration patience);

// Formats "copy of 512 bytes to device memory: timed out after 30000 ms", or the driver's error.
std::string DescribeWait(const CudaDriver& driver, const std::string& operation, CUresult result,
                         Duration patience);

}  // namespace rewire
