// Declarations of the NCCL functions that the storm calls. Thread-safe.
#pragma once

#include "reconfig/abi/nccl_types.h"

extern "C" {
#define STORM_NCCL(name, result, arguments) result name arguments;
#include "bench/storm/nccl_functions.def"
#undef STORM_NCCL
}
