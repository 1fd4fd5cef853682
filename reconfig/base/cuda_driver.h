// The CUDA driver's functions, resolved at run time: nothing of ours links against CUDA. For the
// shim's core, the participant and the trainer; any thread. libc and libstdc++ only.
#pragma once

#include <string>

#include "reconfig/abi/cuda_types.h"

namespace rewire {

// One member per row of cuda_driver.def, under the driver's name without "cu". Every member of a
// loaded table is callable; an optional one that the driver lacks returns CUDA_ERROR_NOT_SUPPORTED.
// Init has not been called. Immutable.
struct CudaDriver {
#define REWIRE_CUDA_ENTRY(member, name, symbol, version, arguments) CUresult(*member) arguments;
#include "reconfig/base/cuda_driver.def"
#undef REWIRE_CUDA_ENTRY

  // The driver of this process, from REWIRE_CUDA_LIBRARY, loaded by the first call and never
  // unloaded. Null when it cannot be loaded or lacks an entry: *error then says which.
  [[nodiscard]] static const CudaDriver* Get(std::string* error);

  // Loads a table from the named library into *driver. Empty when all is well.
  [[nodiscard]] static std::string Load(const std::string& library, CudaDriver* driver);

  // "cuEventRecord: CUDA_ERROR_INVALID_HANDLE (400)".
  [[nodiscard]] std::string Describe(const char* call, CUresult result) const;
};

}  // namespace rewire
