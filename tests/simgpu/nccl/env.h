// The simulated library's settings in the environment. A value that is present but wrong is an
// error of the call that needs the value, never a silent default. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "reconfig/abi/nccl_types.h"

namespace simnccl {

// Gives `fallback` if the variable is not set.
ncclResult_t EnvInt(const char* name, int64_t fallback, int64_t min, int64_t max, int64_t* value);
std::string EnvText(const char* name, const char* fallback = "");

// The version that the library pretends to be (SIMNCCL_VERSION, default 22809). GetVersion returns
// this version, and the plugin loader accepts the plugin versions that it accepts.
ncclResult_t PretendedVersion(int* version);

// NCCL_BUFFSIZE: bytes of staging per connection and direction.
ncclResult_t BufferBytes(size_t* bytes);

}  // namespace simnccl
