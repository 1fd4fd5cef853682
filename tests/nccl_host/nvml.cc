// libnvidia-ml.so.1: the calls that NCCL makes, answered from the simulated driver. There is no
// NVLink, no fabric and no confidential computing. Thread-safe. NVML's own header is not needed:
// handles are device ordinals plus one.
#include <cstdint>
#include <cstdio>

#include "reconfig/abi/cuda_types.h"

extern "C" {
CUresult cuInit(unsigned int flags) noexcept;
CUresult cuDeviceGetCount(int* count) noexcept;
CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) noexcept;
CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) noexcept;
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) noexcept;
}

#define NCCL_HOST_NVML extern "C" __attribute__((visibility("default"))) int

namespace {

enum : int { kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6 };
constexpr int kPeerStatusNotSupported = 5;  // NVML_P2P_STATUS_NOT_SUPPORTED

using Handle = void*;
Handle HandleOf(CUdevice device) { return reinterpret_cast<Handle>(uintptr_t{1} + device); }
CUdevice DeviceOf(Handle handle) {
  return static_cast<CUdevice>(reinterpret_cast<uintptr_t>(handle) - 1);
}

// nvmlPciInfo_t of nvml.h.
struct PciInfo {
  char legacy_bus_id[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
constexpr unsigned int kDeviceId = 0x233010de;  // the value of an H100
constexpr unsigned int kSubsystemId = 0x16c110de;

}  // namespace

NCCL_HOST_NVML nvmlInit_v2() { return cuInit(0) == CUDA_SUCCESS ? kSuccess : kNotFound; }
NCCL_HOST_NVML nvmlInit() { return nvmlInit_v2(); }
NCCL_HOST_NVML nvmlShutdown() { return kSuccess; }

NCCL_HOST_NVML nvmlDeviceGetCount_v2(unsigned int* count) {
  int devices = 0;
  if (cuDeviceGetCount(&devices) != CUDA_SUCCESS) return kNotFound;
  *count = static_cast<unsigned int>(devices);
  return kSuccess;
}
NCCL_HOST_NVML nvmlDeviceGetCount(unsigned int* count) { return nvmlDeviceGetCount_v2(count); }

NCCL_HOST_NVML nvmlDeviceGetHandleByIndex_v2(unsigned int index, Handle* handle) {
  unsigned int count = 0;
  if (nvmlDeviceGetCount_v2(&count) != kSuccess || index >= count) return kInvalidArgument;
  *handle = HandleOf(static_cast<CUdevice>(index));
  return kSuccess;
}
NCCL_HOST_NVML nvmlDeviceGetHandleByIndex(unsigned int index, Handle* handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

NCCL_HOST_NVML nvmlDeviceGetHandleByPciBusId_v2(const char* id, Handle* handle) {
  CUdevice device = 0;
  if (cuDeviceGetByPCIBusId(&device, id) != CUDA_SUCCESS) return kNotFound;
  *handle = HandleOf(device);
  return kSuccess;
}
NCCL_HOST_NVML nvmlDeviceGetHandleByPciBusId(const char* id, Handle* handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, handle);
}

NCCL_HOST_NVML nvmlDeviceGetIndex(Handle handle, unsigned int* index) {
  *index = static_cast<unsigned int>(DeviceOf(handle));
  return kSuccess;
}

NCCL_HOST_NVML nvmlDeviceGetCudaComputeCapability(Handle handle, int* major, int* minor) {
  const CUdevice device = DeviceOf(handle);
  const bool read = cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                         device) == CUDA_SUCCESS &&
                    cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                         device) == CUDA_SUCCESS;
  return read ? kSuccess : kNotFound;
}

NCCL_HOST_NVML nvmlDeviceGetPciInfo_v3(Handle handle, PciInfo* info) {
  *info = PciInfo{};
  if (cuDeviceGetPCIBusId(info->legacy_bus_id, sizeof info->legacy_bus_id, DeviceOf(handle)) !=
      CUDA_SUCCESS) {
    return kNotFound;
  }
  std::sscanf(info->legacy_bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
  std::snprintf(info->bus_id, sizeof info->bus_id, "0000%s", info->legacy_bus_id);
  info->device_id = kDeviceId;
  info->subsystem_id = kSubsystemId;
  return kSuccess;
}
NCCL_HOST_NVML nvmlDeviceGetPciInfoExt(Handle, void*) { return kNotSupported; }

NCCL_HOST_NVML nvmlDeviceGetCurrPcieLinkGeneration(Handle, unsigned int* generation) {
  *generation = 5;
  return kSuccess;
}
NCCL_HOST_NVML nvmlDeviceGetCurrPcieLinkWidth(Handle, unsigned int* width) {
  *width = 16;
  return kSuccess;
}
NCCL_HOST_NVML nvmlDeviceGetPcieLinkMaxSpeed(Handle, unsigned int* mbps) {
  *mbps = 32000;
  return kSuccess;
}

NCCL_HOST_NVML nvmlDeviceGetP2PStatus(Handle, Handle, int, int* status) {
  *status = kPeerStatusNotSupported;
  return kSuccess;
}
NCCL_HOST_NVML nvmlDeviceGetNvLinkState(Handle, unsigned int, int*) { return kNotSupported; }
NCCL_HOST_NVML nvmlDeviceGetNvLinkCapability(Handle, unsigned int, int, unsigned int*) {
  return kNotSupported;
}
NCCL_HOST_NVML nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle, unsigned int, void*) {
  return kNotSupported;
}
NCCL_HOST_NVML nvmlDeviceGetNvLinkRemotePciInfo(Handle, unsigned int, void*) {
  return kNotSupported;
}
NCCL_HOST_NVML nvmlDeviceGetFieldValues(Handle, int, void*) { return kNotSupported; }

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "success";
    case kNotSupported:
      return "not supported";
    default:
      return "invalid argument or not found";
  }
}
