// The environment's settings of the simulated library. A value that is present but wrong is an
// error of the call that needed it, never a silent default. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "reconfig/abi/nccl_types.h"

namespace simnccl {

// `fallback` when the variable is not set.
ncclResult_t EnvInt(const char* name, int64_t fallback, int64_t min, int64_t max, int64_t* value);
std::string EnvText(const char* name, const char* fallback = "");

// The version that the library pretends to be (SIMNCCL_VERSION, default 22809): GetVersion answers
// it and the plugin loader accepts what that version accepts.
ncclResult_t PretendedVersion(int* version);

// NCCL_BUFFSIZE: bytes of staging per connection and direction.
ncclResult_t BufferBytes(size_t* bytes);

}  // namespace simnccl
