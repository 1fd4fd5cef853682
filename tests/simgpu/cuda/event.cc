#include "tests/simgpu/cuda/event.h"

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/stream.h"

namespace simgpu {

Event* FindEvent(CUevent handle) {
  const auto found = State().events.find(handle);
  return found == State().events.end() ? nullptr : found->second.get();
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_EXPORT CUresult cuEventCreate(CUevent* handle, unsigned int flags) noexcept {
  SIMGPU_ENTER();
  constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  if (handle == nullptr || (flags & ~(kKnown | CU_EVENT_INTERPROCESS)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    if ((flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    Say("events between processes are not simulated");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  auto event = std::make_unique<Event>();
  event->context = context;
  event->flags = flags;
  *handle = NewHandle<CUevent>();
  State().events[*handle] = std::move(event);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream_handle) noexcept {
  SIMGPU_ENTER();
  Event* event = FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(stream_handle, &stream));
  if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  SIMGPU_TRY(CheckWorkAgainstCapture(stream));
  event->capture = CaptureOf(stream) != nullptr ? stream->capture : nullptr;
  event->marker = stream->Enqueue({});
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream,
                                              unsigned int flags) noexcept {
  return flags == 0 ? cuEventRecord(handle, stream) : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_EXPORT CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle,
                                         unsigned int flags) noexcept {
  SIMGPU_ENTER();
  if (flags != CU_EVENT_WAIT_DEFAULT && flags != CU_EVENT_WAIT_EXTERNAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(stream_handle, &stream));
  const Event* event = FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags == CU_EVENT_WAIT_EXTERNAL) {
    // The graph, which cannot be launched, waits for the event.
    const Capture* capture = CaptureOf(stream);
    return capture != nullptr && capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(CheckWorkAgainstCapture(stream));
  SIMGPU_TRY(CheckEventAgainstCapture(stream, event));
  if (event->marker == nullptr) return CUDA_SUCCESS;
  if (event->marker->done && !State().settings.virtual_clock()) return CUDA_SUCCESS;
  Operation wait;
  wait.after.push_back(event->marker);
  stream->Enqueue(std::move(wait));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuEventQuery(CUevent handle) noexcept {
  SIMGPU_ENTER();
  const Event* event = FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return event->marker == nullptr || event->marker->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIMGPU_EXPORT CUresult cuEventSynchronize(CUevent handle) noexcept {
  SIMGPU_ENTER();
  const Event* event = FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  const MarkerRef marker = event->marker;  // the event may be destroyed during the wait
  WaitFor(marker);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle,
                                          CUevent end_handle) noexcept {
  SIMGPU_ENTER();
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Event* start = FindEvent(start_handle);
  const Event* end = FindEvent(end_handle);
  for (const Event* event : {start, end}) {
    if (event == nullptr || event->marker == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!start->marker->done || !end->marker->done) return CUDA_ERROR_NOT_READY;
  if (State().settings.virtual_clock()) {
    *milliseconds = static_cast<float>(
        (static_cast<double>(end->marker->clock) - static_cast<double>(start->marker->clock)) /
        1e6);
    return CUDA_SUCCESS;
  }
  *milliseconds = static_cast<float>(rewire::ToMilliseconds(end->marker->at - start->marker->at));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start,
                                             CUevent end) noexcept {
  return cuEventElapsedTime(milliseconds, start, end);
}

SIMGPU_EXPORT CUresult cuEventDestroy_v2(CUevent handle) noexcept {
  SIMGPU_ENTER();
  return State().events.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
