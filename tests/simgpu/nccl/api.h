// The prototypes of NCCL 2.28.9's host API: this library defines them and its tests call them. If
// nccl.h is installed, the prototypes are checked against it
// (tests/unit/simgpu_nccl/installed_api.cc).
#pragma once

#include "reconfig/abi/nccl_types.h"
#include "tests/simgpu/nccl/functions.h"

extern "C" {
#define SIMNCCL_DECLARE(result, name, parameters)                      \
  __attribute__((visibility("default"))) result nccl##name parameters; \
  __attribute__((visibility("default"))) result pnccl##name parameters;
SIMNCCL_EACH_FUNCTION(SIMNCCL_DECLARE)
#undef SIMNCCL_DECLARE
}

// NCCL's PMPI pattern: the strong pncclX is the function, the weak ncclX is the same address.
#define SIMNCCL_ALIAS(name) \
  extern "C" __attribute__((weak, alias("p" #name), visibility("default"))) decltype(p##name) name
