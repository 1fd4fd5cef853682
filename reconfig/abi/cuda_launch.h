/* Launches of kernels with attributes, as in the CUDA driver's ABI; see cuda_types.h. C99. */
#pragma once

#include "reconfig/abi/cuda_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CU_LAUNCH_PARAM_END ((void*)0x00)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void*)0x01)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void*)0x02)

typedef enum { CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT = 12 } CUlaunchAttributeID;

typedef struct {
  CUlaunchAttributeID id;
  char pad[8 - sizeof(CUlaunchAttributeID)];
  union {
    char pad[64];
    struct {
      CUevent event;
      int flags;
    } launchCompletionEvent;
  } value;
} CUlaunchAttribute;

typedef struct {
  unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned int numAttrs;
} CUlaunchConfig;

#ifdef __cplusplus
} /* extern "C" */
#endif
