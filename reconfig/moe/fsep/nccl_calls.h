// The NCCL functions that the exchange calls. Rewire does not link against NCCL: the caller
// supplies the functions, or OfProcess() finds them. All pointers must be set. Thread-compatible.
#pragma once

#include "absl/status/statusor.h"
#include "reconfig/abi/nccl_types.h"

namespace rewire::moe::fsep {

struct NcclCalls {
  // Finds the functions that the program's own calls reach. They are global symbols (of a preloaded
  // shim or a linked library), or those of a libnccl.so.2 that another library, for example a
  // Python package, has loaded for itself. Does not load a library. Thread-safe.
  static absl::StatusOr<NcclCalls> OfProcess();

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
