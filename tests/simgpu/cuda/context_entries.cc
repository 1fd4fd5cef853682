// The entries for contexts. Called by applications. Thread-safe.
#include <algorithm>

#include "tests/simgpu/cuda/capture.h"
#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

void DestroyPrimary(Device* device) REWIRE_REQUIRES(driver_mutex) {
  Context* context = FindContext(device->primary);
  device->primary = nullptr;
  device->primary_references = 0;
  if (context != nullptr) DestroyContext(context);
}

}  // namespace

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice ordinal) noexcept {
  SIMGPU_ENTER();
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device->primary == nullptr) {
    Context* context = nullptr;
    SIMGPU_TRY(CreateContext(device, device->primary_flags, true, &context));
    device->primary = context->handle;
  }
  ++device->primary_references;
  *handle = device->primary;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) noexcept {
  SIMGPU_ENTER();
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->primary_references == 0) DestroyPrimary(device);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) noexcept {
  SIMGPU_ENTER();
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  DestroyPrimary(device);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal,
                                                     unsigned int flags) noexcept {
  SIMGPU_ENTER();
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  device->primary_flags = flags;
  if (Context* context = FindContext(device->primary)) context->flags = flags;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags,
                                                  int* active) noexcept {
  SIMGPU_ENTER();
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = device->primary_flags;
  *active = device->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxCreate_v2(CUcontext* handle, unsigned int flags,
                                      CUdevice ordinal) noexcept {
  SIMGPU_ENTER();
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context = nullptr;
  SIMGPU_TRY(CreateContext(device, flags, false, &context));
  if (!ContextStack().push_back(context->handle)) {
    DestroyContext(context);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = context->handle;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxCreate_v3(CUcontext* handle, void* affinity, int count,
                                      unsigned int flags, CUdevice device) noexcept {
  if (affinity != nullptr || count != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return cuCtxCreate_v2(handle, flags, device);
}

SIMGPU_EXPORT CUresult cuCtxCreate_v4(CUcontext* handle, void* parameters, unsigned int flags,
                                      CUdevice device) noexcept {
  if (parameters != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return cuCtxCreate_v2(handle, flags, device);
}

SIMGPU_EXPORT CUresult cuCtxDestroy_v2(CUcontext handle) noexcept {
  SIMGPU_ENTER();
  Context* context = FindContext(handle);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = ContextStack();
  if (!stack.empty() && stack.back() == handle) stack.pop_back();
  DestroyContext(context);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxSetCurrent(CUcontext handle) noexcept {
  SIMGPU_ENTER();
  if (handle != nullptr && FindContext(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = ContextStack();
  if (!stack.empty()) stack.pop_back();
  if (handle != nullptr && !stack.push_back(handle)) return CUDA_ERROR_OUT_OF_MEMORY;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxGetCurrent(CUcontext* handle) noexcept {
  SIMGPU_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = ContextStack().empty() ? nullptr : ContextStack().back();
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext handle) noexcept {
  SIMGPU_ENTER();
  if (FindContext(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return ContextStack().push_back(handle) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIMGPU_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* handle) noexcept {
  SIMGPU_ENTER();
  auto& stack = ContextStack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxGetDevice(CUdevice* device) noexcept {
  SIMGPU_ENTER();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxGetFlags(unsigned int* flags) noexcept {
  SIMGPU_ENTER();
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  *flags = context->flags;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxSynchronize() noexcept {
  SIMGPU_ENTER();
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  SIMGPU_TRY(CheckWaitAgainstCaptures(context));
  WaitForContext(context);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) noexcept {
  SIMGPU_ENTER();
  if (FindDevice(device) == nullptr || FindDevice(peer) == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) noexcept {
  SIMGPU_ENTER();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  const Context* other = FindContext(peer);
  if (other == nullptr || other == context) return CUDA_ERROR_INVALID_CONTEXT;
  auto& peers = context->peers;
  if (std::find(peers.begin(), peers.end(), peer) != peers.end()) {
    return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  }
  peers.push_back(peer);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) noexcept {
  SIMGPU_ENTER();
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  return std::erase(context->peers, peer) == 1 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
