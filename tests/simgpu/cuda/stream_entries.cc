// The entries for streams. Called by applications. Thread-safe.
#include <memory>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

CUresult Launch(CUstream handle, void (*function)(void*), void* argument, bool kernel,
                uint64_t cost = 0) {
  SIMGPU_ENTER();
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStreamForWork(handle, &stream));
  Operation operation;
  operation.kernel = kernel;
  operation.cost = cost;
  operation.work = [function, argument, kernel](uint64_t*) {
    if (!kernel) SetInHostFunction(true);
    function(argument);
    if (!kernel) SetInHostFunction(false);
  };
  stream->Enqueue(std::move(operation));
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned int flags,
                                                  int priority) noexcept {
  SIMGPU_ENTER();
  if (handle == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  const int clamped = std::min(kLeastPriority, std::max(kGreatestPriority, priority));
  *handle = AddStream(
      context, flags == CU_STREAM_NON_BLOCKING ? StreamKind::kNonBlocking : StreamKind::kBlocking,
      clamped);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamCreate(CUstream* handle, unsigned int flags) noexcept {
  return cuStreamCreateWithPriority(handle, flags, 0);
}

SIMGPU_EXPORT CUresult cuStreamDestroy_v2(CUstream handle) noexcept {
  SIMGPU_ENTER();
  const auto found = State().streams.find(handle);
  if (found == State().streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  RemoveStream(handle);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamSynchronize(CUstream handle) noexcept {
  SIMGPU_ENTER();
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStreamForWait(handle, &stream));
  // A wait for the legacy stream waits for every stream that the legacy stream waits for.
  const MarkerRef marker =
      stream->kind == StreamKind::kLegacy ? stream->Enqueue({}) : stream->last();
  WaitFor(marker);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamQuery(CUstream handle) noexcept {
  SIMGPU_ENTER();
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStreamForWait(handle, &stream));
  const MarkerRef marker =
      stream->kind == StreamKind::kLegacy ? stream->Enqueue({}) : stream->last();
  return marker == nullptr || marker->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIMGPU_EXPORT CUresult cuStreamGetPriority(CUstream handle, int* priority) noexcept {
  SIMGPU_ENTER();
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) noexcept {
  SIMGPU_ENTER();
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  *flags = stream->kind == StreamKind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) noexcept {
  SIMGPU_ENTER();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  *context = stream->context->handle;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) noexcept {
  SIMGPU_ENTER();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  *device = stream->device->ordinal;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long* id) noexcept {
  SIMGPU_ENTER();
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStream(handle, &stream));
  *id = stream->id;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) noexcept {
  SIMGPU_ENTER();
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function,
                                        void* argument) noexcept {
  return Launch(stream, function, argument, false);
}

SIMGPU_EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function,
                                           void* argument, unsigned int flags) noexcept {
  if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct Call {
    CUstream stream;
    CUstreamCallback function;
    void* argument;
  };
  auto call = std::make_unique<Call>(Call{stream, function, argument});
  const CUresult result = Launch(
      stream,
      [](void* data) {
        const std::unique_ptr<Call> owned(static_cast<Call*>(data));
        owned->function(owned->stream, CUDA_SUCCESS, owned->argument);
      },
      call.get(), false);
  if (result == CUDA_SUCCESS) (void)call.release();
  return result;
}

SIMGPU_EXPORT CUresult cuSimLaunchKernel(CUstream stream, void (*function)(void*),
                                         void* argument) noexcept {
  return Launch(stream, function, argument, true);
}

SIMGPU_EXPORT CUresult cuSimLaunchTimedKernel(CUstream stream, void (*function)(void*),
                                              void* argument, uint64_t nanoseconds) noexcept {
  return Launch(stream, function, argument, true, nanoseconds);
}

SIMGPU_EXPORT CUresult cuSimAdvanceClock(CUstream handle, uint64_t at_least,
                                         uint64_t* now) noexcept {
  SIMGPU_ENTER();
  if (now == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStreamForWork(handle, &stream));
  WaitFor(stream->last());
  SIMGPU_TRY(FindStream(handle, &stream));  // the stream may be gone by now
  stream->AdvanceClock(at_least);
  *now = stream->clock();
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuSimGetCounts(cuSimCounts* counts) noexcept {
  SIMGPU_ENTER();
  if (counts == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *counts = State().counts;
  return CUDA_SUCCESS;
}
