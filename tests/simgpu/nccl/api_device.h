// The prototypes of the device API's host side in 2.28.9, with pointers to its structs left opaque.
#pragma once

#include "reconfig/abi/nccl_types.h"

extern "C" {

typedef struct {
  int nRanks;
  int rank;
  int stride;
} ncclTeam_t;

#define SIMNCCL_EACH_DEVICE_FUNCTION(X)                                                  \
  X(ncclResult_t, DevCommCreate, (ncclComm_t comm, const void* requirements, void* out)) \
  X(ncclResult_t, DevCommDestroy, (ncclComm_t comm, const void* device_comm))            \
  X(ncclTeam_t, TeamWorld, (ncclComm_t comm))                                            \
  X(ncclTeam_t, TeamLsa, (ncclComm_t comm))                                              \
  X(ncclTeam_t, TeamRail, (ncclComm_t comm))                                             \
  X(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank))                  \
  X(int, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank))                    \
  X(ncclResult_t, LsaBarrierCreateRequirement,                                           \
    (ncclTeam_t team, int barriers, void* handle, void* requirement))                    \
  X(ncclResult_t, GinBarrierCreateRequirement,                                           \
    (ncclComm_t comm, ncclTeam_t team, int barriers, void* handle, void* requirement))   \
  X(int, LLA2ACalcSlots, (int max_elements, int max_element_bytes))                      \
  X(ncclResult_t, LLA2ACreateRequirement, (int blocks, int slots, void* handle, void* requirement))

#define SIMNCCL_DECLARE(result, name, parameters)                      \
  __attribute__((visibility("default"))) result nccl##name parameters; \
  __attribute__((visibility("default"))) result pnccl##name parameters;
SIMNCCL_EACH_DEVICE_FUNCTION(SIMNCCL_DECLARE)
#undef SIMNCCL_DECLARE
}
