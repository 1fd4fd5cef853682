// ncclConfig_t: versioned by its size, checked field by field as NCCL does. Pure; thread-safe.
#pragma once

#include "tests/simgpu/nccl/comm.h"

namespace simnccl {

// `config` may be null. `inherited` holds the values of fields that are not set.
ncclResult_t ReadConfig(const ncclConfig_t* config, const Config& inherited, Config* result);

}  // namespace simnccl
