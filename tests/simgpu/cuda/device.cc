// The devices: names, identities and attributes of a data-centre card with made-up numbers.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

constexpr int kFirstBus = 0x18;

struct AttributeRow {
  CUdevice_attribute attribute;
  int value;
};

constexpr AttributeRow kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0},
    // Only NCCL's host code queries these attributes; the numbers are cuda.h's.
    {static_cast<CUdevice_attribute>(97), 232448},  // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    {static_cast<CUdevice_attribute>(110), 0},      // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
    {static_cast<CUdevice_attribute>(118), 0},      // GPU_DIRECT_RDMA_WRITES_ORDERING
    {static_cast<CUdevice_attribute>(124), 0},      // DMA_BUF_SUPPORTED
    {static_cast<CUdevice_attribute>(134), -1},     // HOST_NUMA_ID
};

}  // namespace

SIMGPU_EXPORT CUresult cuDeviceGetCount(int* count) noexcept {
  SIMGPU_ENTER();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(State().devices.size());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) noexcept {
  SIMGPU_ENTER();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDeviceGetName(char* name, int size, CUdevice device) noexcept {
  SIMGPU_ENTER();
  if (FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (name == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(size), "Simulated GPU");
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) noexcept {
  SIMGPU_ENTER();
  if (FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The UUID is the same in every process of the machine, because peers compare it.
  std::memcpy(uuid->bytes, "simulated-gpu-\0\0", sizeof uuid->bytes);
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) noexcept {
  return cuDeviceGetUuid_v2(uuid, device);
}

SIMGPU_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                            CUdevice device) noexcept {
  SIMGPU_ENTER();
  if (FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
    *value = kFirstBus + device;
    return CUDA_SUCCESS;
  }
  if (attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS) {
    *value = State().settings.kernel_slots == 1 ? 0 : 1;
    return CUDA_SUCCESS;
  }
  if (attribute == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) {
    // The cache size of this machine's processor, or a made-up size if the system does not tell.
    const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    *value = bytes > 0 ? static_cast<int>(bytes) : 1 << 20;
    return CUDA_SUCCESS;
  }
  for (const AttributeRow& row : kAttributes) {
    if (row.attribute != attribute) continue;
    *value = row.value;
    return CUDA_SUCCESS;
  }
  Say("device attribute %d is not simulated", static_cast<int>(attribute));
  return CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_EXPORT CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) noexcept {
  SIMGPU_ENTER();
  if (FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (id == nullptr || size < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(id, static_cast<size_t>(size), "0000:%02X:00.0", kFirstBus + device);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) noexcept {
  SIMGPU_ENTER();
  if (device == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (std::sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int ordinal = static_cast<int>(bus) - kFirstBus;
  if (domain != 0 || slot != 0 || FindDevice(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) noexcept {
  SIMGPU_ENTER();
  if (FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = State().settings.memory_bytes;
  return CUDA_SUCCESS;
}
