/* The types of NCCL's functions that reconfig/abi/nccl_types.h lacks: types of the device API's
 * host side and of releases after 2.28. C99. Types that the shim only passes on stay opaque. */
#pragma once

#include "reconfig/abi/nccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclCommProperties ncclCommProperties_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclGinOutboxHandle ncclGinOutboxHandle;
typedef struct ncclGinInboxA2AHandle ncclGinInboxA2AHandle;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
typedef struct ncclCftBarrierHandle ncclCftBarrierHandle_t;
typedef struct ncclCollConfig ncclCollConfig_t;
typedef struct ncclEncryptionConfig ncclEncryptionConfig_t;
typedef struct ncclParamHandle* ncclParamHandle_t;
typedef uint32_t ncclCftLeId;

/* Passed by value, so their layout matters. */
typedef struct ncclTeam {
  int nRanks, rank, stride;
} ncclTeam_t;

typedef struct ncclMultimemHandle {
  void* mcBasePtr;
} ncclMultimemHandle_t;

typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

typedef enum {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

typedef enum {
  NCCL_CFT_TEAM_FLAT = 0,
  NCCL_CFT_TEAM_HIER_MULTIMEM = 1,
  NCCL_CFT_TEAM_HIER_LSA = 2
} ncclCftTeamMode_t;

#ifdef __cplusplus
}
#endif
