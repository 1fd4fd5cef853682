// Calls that NCCL makes only for textures, or for graphs without a capture. They are not simulated.
// Each call reports its name. Thread-safe.
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
NCCL_HOST_REFUSE(cudaGraphAddHostNode, cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*,
                 size_t, const cudaHostNodeParams*)
