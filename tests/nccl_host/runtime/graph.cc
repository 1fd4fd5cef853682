// Captures and graphs. The driver drops captured work and launches no graph, so a graph has no
// nodes here, and dependencies between nodes have no effect. Thread-safe.
#include "tests/nccl_host/runtime/runtime.h"

using namespace nccl_host;

namespace {

// The dependencies of a capture change only while there is one.
cudaError_t CheckCaptures(cudaStream_t stream) {
  NCCL_HOST_ENTER();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = cuStreamIsCapturing(stream, &status);
  if (asked != CUDA_SUCCESS) return Keep(asked);
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? cudaSuccess : Keep(cudaErrorIllegalState);
}

}  // namespace

NCCL_HOST_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                   cudaStreamCaptureStatus* status) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)));
}

NCCL_HOST_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  NCCL_HOST_ENTER();
  return Keep(cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
}

#if CUDART_VERSION >= 13000
NCCL_HOST_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                      cudaStreamCaptureStatus* status,
                                                      unsigned long long* id, cudaGraph_t* graph,
                                                      const cudaGraphNode_t** dependencies,
                                                      const cudaGraphEdgeData** edges,
                                                      size_t* count) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                     reinterpret_cast<cuuint64_t*>(id), graph, dependencies,
                                     reinterpret_cast<const CUgraphEdgeData**>(edges), count));
}

NCCL_HOST_EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                                 cudaGraphNode_t*,
                                                                 const cudaGraphEdgeData*, size_t,
                                                                 unsigned int) {
  return CheckCaptures(stream);
}

NCCL_HOST_EXPORT cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t*,
                                                      const cudaGraphNode_t*,
                                                      const cudaGraphEdgeData*, size_t) {
  return cudaSuccess;
}
#else
NCCL_HOST_EXPORT cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
                                                         cudaStreamCaptureStatus* status,
                                                         unsigned long long* id, cudaGraph_t* graph,
                                                         const cudaGraphNode_t** dependencies,
                                                         size_t* count) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamGetCaptureInfo_v2(stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                        reinterpret_cast<cuuint64_t*>(id), graph, dependencies,
                                        count));
}

NCCL_HOST_EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                                 cudaGraphNode_t*, size_t,
                                                                 unsigned int) {
  return CheckCaptures(stream);
}

NCCL_HOST_EXPORT cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t*,
                                                      const cudaGraphNode_t*, size_t) {
  return cudaSuccess;
}
#endif

NCCL_HOST_EXPORT cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                         const cudaGraphNode_t*, size_t,
                                                         cudaEvent_t) {
  *node = reinterpret_cast<cudaGraphNode_t>(graph);  // never used but as a dependency
  return cudaSuccess;
}

NCCL_HOST_EXPORT cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* argument,
                                                  cudaHostFn_t destroy, unsigned int references,
                                                  unsigned int flags) {
  NCCL_HOST_ENTER();
  return Keep(cuUserObjectCreate(object, argument, destroy, references, flags));
}

NCCL_HOST_EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                       unsigned int references,
                                                       unsigned int flags) {
  NCCL_HOST_ENTER();
  return Keep(cuGraphRetainUserObject(graph, object, references, flags));
}
