#include "tests/simgpu/cuda/capture.h"

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/stream.h"

namespace simgpu {
namespace {

thread_local CUstreamCaptureMode interaction = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool Forbids(const Capture& capture) {
  if (capture.status == CU_STREAM_CAPTURE_STATUS_NONE) return false;
  if (interaction == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == ThreadNumber()) return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return interaction == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult GetInfo(CUstream handle, CUstreamCaptureStatus* status, uint64_t* id) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_ENTER();
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  if (stream->kind == StreamKind::kLegacy) {
    for (const Stream* other : stream->context->streams) {
      if (other->kind == StreamKind::kBlocking &&
          other->capture.status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  *status = stream->capture.status;
  if (id != nullptr) *id = stream->capture.id;
  return CUDA_SUCCESS;
}

bool IsMode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

}  // namespace

CUresult CheckWorkAgainstCapture(Stream* stream) {
  Capture& capture = stream->capture;
  if (capture.status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (capture.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    Say("work in a capturing stream is not simulated; the capture is invalid now");
    capture.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (stream->kind != StreamKind::kLegacy) return CUDA_SUCCESS;
  // The legacy stream would depend on the capturing streams.
  CUresult result = CUDA_SUCCESS;
  for (Stream* other : stream->context->streams) {
    if (other->kind != StreamKind::kBlocking) continue;
    if (other->capture.status == CU_STREAM_CAPTURE_STATUS_NONE) continue;
    other->capture.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

CUresult CheckUnsafeCall() {
  CUresult result = CUDA_SUCCESS;
  for (const auto& [handle, stream] : State().streams) {
    if (!Forbids(stream->capture)) continue;
    stream->capture.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) noexcept {
  SIMGPU_ENTER();
  if (!IsMode(mode)) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  if (stream->kind == StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture.status != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = {CU_STREAM_CAPTURE_STATUS_ACTIVE, mode, ThreadNumber(), State().next_id++};
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamBeginCapture(CUstream handle) noexcept {
  return cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SIMGPU_EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) noexcept {
  SIMGPU_ENTER();
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  Capture& capture = stream->capture;
  if (capture.status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != ThreadNumber()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const bool valid = capture.status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  capture = Capture{};
  if (!valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *graph = NewHandle<CUgraph>();  // an empty graph: no work can be captured
  State().graphs.insert(*graph);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuGraphDestroy(CUgraph graph) noexcept {
  SIMGPU_ENTER();
  return State().graphs.erase(graph) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_EXPORT CUresult cuStreamIsCapturing(CUstream handle,
                                           CUstreamCaptureStatus* status) noexcept {
  return GetInfo(handle, status, nullptr);
}

SIMGPU_EXPORT CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status,
                                              uint64_t* id) noexcept {
  return GetInfo(handle, status, id);
}

SIMGPU_EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status,
                                                 uint64_t* id, CUgraph* graph,
                                                 const CUgraphNode** nodes,
                                                 size_t* count) noexcept {
  SIMGPU_TRY(GetInfo(handle, status, id));
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (count != nullptr) *count = 0;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status,
                                                 uint64_t* id, CUgraph* graph,
                                                 const CUgraphNode** nodes, const void** edges,
                                                 size_t* count) noexcept {
  SIMGPU_TRY(cuStreamGetCaptureInfo_v2(handle, status, id, graph, nodes, count));
  if (edges != nullptr) *edges = nullptr;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) noexcept {
  SIMGPU_ENTER();
  if (mode == nullptr || !IsMode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, interaction);
  return CUDA_SUCCESS;
}
