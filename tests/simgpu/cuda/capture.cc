#include "tests/simgpu/cuda/capture.h"

#include <atomic>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/graph.h"
#include "tests/simgpu/cuda/stream.h"

namespace simgpu {
namespace {

// Counts the ends of streams, and streams that begin to take part in a capture. While it stays, a
// stream that took part in none still takes part in none. CUDA also answers this without a lock
// that other threads hold, and programs ask before each operation.
std::atomic<uint64_t> changes{0};
thread_local CUstream outside = nullptr;  // this thread's last stream that took part in none
thread_local uint64_t outside_since = 0;

thread_local CUstreamCaptureMode interaction = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool Forbids(const Capture& capture) {
  if (interaction == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == ThreadNumber()) return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return interaction == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult Invalidate(Capture* capture, CUresult reason) {
  capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return reason;
}

CUresult GetInfo(CUstream handle, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_ENTER();
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  if (stream->kind == StreamKind::kLegacy) {
    for (const Stream* other : stream->context->streams) {
      if (other->kind == StreamKind::kBlocking && CaptureOf(other) != nullptr) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  const Capture* capture = CaptureOf(stream);
  *status = capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE : capture->status;
  if (id != nullptr) *id = capture == nullptr ? 0 : capture->id;
  if (graph != nullptr) *graph = capture == nullptr ? nullptr : capture->graph;
  return CUDA_SUCCESS;
}

bool IsMode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

}  // namespace

void ForgetAnswers() { ++changes; }

Capture* CaptureOf(const Stream* stream) {
  return stream->capture != nullptr && !stream->capture->ended ? stream->capture.get() : nullptr;
}

CUresult CheckWorkAgainstCapture(Stream* stream) {
  const Capture* capture = CaptureOf(stream);
  if (capture != nullptr && capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (stream->kind != StreamKind::kLegacy) return CUDA_SUCCESS;
  // The legacy stream would depend on the capturing streams.
  CUresult result = CUDA_SUCCESS;
  for (const Stream* other : stream->context->streams) {
    if (other->kind != StreamKind::kBlocking || CaptureOf(other) == nullptr) continue;
    result = Invalidate(CaptureOf(other), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  return result;
}

CUresult CheckWaitAgainstCapture(Stream* stream) {
  SIMGPU_TRY(CheckWorkAgainstCapture(stream));
  Capture* capture = CaptureOf(stream);
  return capture == nullptr ? CUDA_SUCCESS
                            : Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult CheckWaitAgainstCaptures(const Context* context) {
  CUresult result = CUDA_SUCCESS;
  for (const Stream* stream : context->streams) {
    if (Capture* capture = CaptureOf(stream)) {
      result = Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return result;
}

CUresult CheckEventAgainstCapture(Stream* stream, const Event* event) {
  Capture* capture = CaptureOf(stream);
  if (event->capture == nullptr) {
    return capture == nullptr ? CUDA_SUCCESS
                              : Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  if (event->capture->ended) return CUDA_ERROR_CAPTURED_EVENT;
  if (capture == nullptr) {
    stream->capture = event->capture;
    ForgetAnswers();
  }
  if (stream->capture == event->capture) return CUDA_SUCCESS;
  Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  return Invalidate(event->capture.get(), CUDA_ERROR_STREAM_CAPTURE_MERGE);
}

CUresult CheckUnsafeCall() {
  CUresult result = CUDA_SUCCESS;
  for (const auto& [handle, stream] : State().streams) {
    Capture* capture = CaptureOf(stream.get());
    if (capture == nullptr || !Forbids(*capture)) continue;
    result = Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
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
  if (CaptureOf(stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture =
      std::make_shared<Capture>(Capture{CU_STREAM_CAPTURE_STATUS_ACTIVE, mode, ThreadNumber(),
                                        State().next_id++, stream, NewGraph()});
  ForgetAnswers();
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamBeginCapture(CUstream handle) noexcept {
  return cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SIMGPU_EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) noexcept {
  GraphEnd discarded;  // ends without the lock
  SIMGPU_ENTER();
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  Capture* capture = CaptureOf(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != ThreadNumber()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  capture->ended = true;
  if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    discarded = TakeGraph(capture->graph).value_or(GraphEnd());
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *graph = capture->graph;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamIsCapturing(CUstream handle,
                                           CUstreamCaptureStatus* status) noexcept {
  SIMGPU_TRY(Enter());
  const uint64_t now = changes.load();
  if (handle != nullptr && handle == outside && outside_since == now && status != nullptr) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  SIMGPU_TRY(GetInfo(handle, status, nullptr, nullptr));
  // The per-thread and the legacy stream depend on the current context.
  const bool own = handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD;
  outside = own && *status == CU_STREAM_CAPTURE_STATUS_NONE ? handle : nullptr;
  outside_since = now;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status,
                                              uint64_t* id) noexcept {
  return GetInfo(handle, status, id, nullptr);
}

SIMGPU_EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status,
                                                 uint64_t* id, CUgraph* graph,
                                                 const CUgraphNode** nodes,
                                                 size_t* count) noexcept {
  SIMGPU_TRY(GetInfo(handle, status, id, graph));
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
