// Calls that NCCL makes only with graphs or textures, neither of which is simulated. Each call
// reports its name. Thread-safe.
#include <cstdio>

#include "tests/nccl_host/runtime/runtime.h"

namespace {

cudaError_t Refuse(const char* name) {
  std::fprintf(stderr, "nccl_host: %s: the call is not simulated\n", name);
  return nccl_host::Keep(cudaErrorNotSupported);
}

}  // namespace

#define NCCL_HOST_REFUSE(name, ...) \
  NCCL_HOST_EXPORT cudaError_t name(__VA_ARGS__) { return Refuse(#name); }

NCCL_HOST_REFUSE(cudaArrayGetInfo, cudaChannelFormatDesc*, cudaExtent*, unsigned int*, cudaArray_t)
NCCL_HOST_REFUSE(cudaUserObjectCreate, cudaUserObject_t*, void*, cudaHostFn_t, unsigned int,
                 unsigned int)
NCCL_HOST_REFUSE(cudaGraphRetainUserObject, cudaGraph_t, cudaUserObject_t, unsigned int,
                 unsigned int)
NCCL_HOST_REFUSE(cudaGraphAddEventRecordNode, cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*,
                 size_t, cudaEvent_t)
NCCL_HOST_REFUSE(cudaGraphAddHostNode, cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*,
                 size_t, const cudaHostNodeParams*)
#if CUDART_VERSION >= 13000
NCCL_HOST_REFUSE(cudaStreamUpdateCaptureDependencies, cudaStream_t, cudaGraphNode_t*,
                 const cudaGraphEdgeData*, size_t, unsigned int)
NCCL_HOST_REFUSE(cudaGraphAddDependencies, cudaGraph_t, const cudaGraphNode_t*,
                 const cudaGraphNode_t*, const cudaGraphEdgeData*, size_t)
#else
NCCL_HOST_REFUSE(cudaStreamUpdateCaptureDependencies, cudaStream_t, cudaGraphNode_t*, size_t,
                 unsigned int)
NCCL_HOST_REFUSE(cudaGraphAddDependencies, cudaGraph_t, const cudaGraphNode_t*,
                 const cudaGraphNode_t*, size_t)
#endif
