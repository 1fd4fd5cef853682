// Opens NCCL's host code and the CUDA runtime below it at run time, from the folder of one build's
// libraries (tests/nccl_host). For a rank of `./dev bench net --nccl`, on its main thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {

// The functions are valid until the process ends.
struct NcclLibrary {
  CudaDriver cuda;
  ncclResult_t (*GetVersion)(int*);
  const char* (*GetErrorString)(ncclResult_t);
  ncclResult_t (*GetUniqueId)(ncclUniqueId*);
  ncclResult_t (*CommInitRank)(ncclComm_t*, int, ncclUniqueId, int);
  ncclResult_t (*CommGetAsyncError)(ncclComm_t, ncclResult_t*);
  ncclResult_t (*CommDestroy)(ncclComm_t);
  ncclResult_t (*AllReduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                            cudaStream_t);
  ncclResult_t (*Send)(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*Recv)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
};

// folder: contains libcuda.so.1, libcudart.so.N, libnvidia-ml.so.1 and libnccl.so.2. NCCL's
// environment variables must be set before the call.
[[nodiscard]] absl::StatusOr<NcclLibrary> OpenNccl(const std::string& folder);

}  // namespace rewire::bench
