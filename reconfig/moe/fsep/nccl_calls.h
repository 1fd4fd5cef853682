// The NCCL functions that the exchange calls: nothing of ours links against NCCL, so whoever has
// the library, or a shim before it, hands them in. All are set. A value.
#pragma once

#include "reconfig/abi/nccl_types.h"

namespace rewire::moe::fsep {

struct NcclCalls {
  const char* (*GetErrorString)(ncclResult_t) = nullptr;
  ncclResult_t (*CommCount)(const ncclComm_t, int*) = nullptr;
  ncclResult_t (*CommUserRank)(const ncclComm_t, int*) = nullptr;
  ncclResult_t (*GroupStart)() = nullptr;
  ncclResult_t (*GroupEnd)() = nullptr;
  ncclResult_t (*Send)(const void*, size_t, ncclDataType_t, int, ncclComm_t,
                       cudaStream_t) = nullptr;
  ncclResult_t (*Recv)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) = nullptr;
};

}  // namespace rewire::moe::fsep
