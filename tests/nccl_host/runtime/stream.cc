// Streams and events. Thread-safe.
#include "tests/nccl_host/runtime/runtime.h"

using namespace nccl_host;

NCCL_HOST_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamCreate(stream, flags));
}

NCCL_HOST_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags,
                                                          int priority) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamCreateWithPriority(stream, flags, priority));
}

NCCL_HOST_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, 0);
}

NCCL_HOST_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamDestroy(stream));
}

NCCL_HOST_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamSynchronize(stream));
}

NCCL_HOST_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamQuery(stream));
}

NCCL_HOST_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                                 unsigned int flags) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamWaitEvent(stream, event, flags));
}

NCCL_HOST_EXPORT cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamGetId(stream, id));
}

NCCL_HOST_EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  NCCL_HOST_ENTER();
  return Keep(cuStreamGetDevice(stream, device));
}

NCCL_HOST_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                                                void* argument) {
  NCCL_HOST_ENTER();
  return Keep(cuLaunchHostFunc(stream, function, argument));
}

NCCL_HOST_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  NCCL_HOST_ENTER();
  return Keep(cuEventCreate(event, flags));
}

NCCL_HOST_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}

NCCL_HOST_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  NCCL_HOST_ENTER();
  return Keep(cuEventDestroy(event));
}

NCCL_HOST_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  NCCL_HOST_ENTER();
  return Keep(cuEventRecord(event, stream));
}

NCCL_HOST_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  NCCL_HOST_ENTER();
  return Keep(cuEventQuery(event));
}

NCCL_HOST_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  NCCL_HOST_ENTER();
  return Keep(cuEventSynchronize(event));
}

NCCL_HOST_EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start,
                                                  cudaEvent_t end) {
  NCCL_HOST_ENTER();
  return Keep(cuEventElapsedTime(milliseconds, start, end));
}
