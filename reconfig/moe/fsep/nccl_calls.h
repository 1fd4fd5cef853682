// The NCCL functions that the exchange calls. Nothing of ours links against NCCL: whoever has the
// library hands them in, or they are those of the process. All are set. A value.
#pragma once

#include "absl/status/statusor.h"
#include "reconfig/abi/nccl_types.h"

namespace rewire::moe::fsep {

struct NcclCalls {
  // What the program's own calls reach: global symbols (a shim that is preloaded, a library that is
  // linked), or a libnccl.so.2 that something has loaded for itself, as Python's packages do. Loads
  // nothing. Any thread.
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
