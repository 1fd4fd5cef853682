#include "tests/simgpu/cuda/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

namespace simgpu {
namespace {

// A process that lends memory locks the descriptor's open file description. The kernel drops the
// lock with the last copy and the last mapping, in any process, however that process ended.
bool IsLent(const PhysicalMemory& memory) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return ::fcntl(memory.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void Free(const PhysicalMemory& memory) {
  ::close(memory.fd);
  if (!memory.imported) memory.device->arena.Uncharge(memory.size);
}

}  // namespace

int LendPhysical(const PhysicalMemory& memory) {
  const std::string path = "/proc/self/fd/" + std::to_string(memory.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  if (fd < 0 || ::fcntl(fd, F_OFD_SETLK, &lock) == 0) return fd;
  ::close(fd);
  return -1;
}

CUresult CheckProperties(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->win32HandleMetaData != nullptr ||
      properties->location.type == CU_MEM_LOCATION_TYPE_INVALID) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 ||
      properties->allocFlags.usage != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return FindDevice(properties->location.id) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUmemGenericAllocationHandle AddPhysical(PhysicalMemory memory) {
  const auto handle = reinterpret_cast<CUmemGenericAllocationHandle>(NewHandle<void*>());
  memory.handles = 1;
  State().physical[handle] = memory;
  return handle;
}

PhysicalMemory* FindPhysical(CUmemGenericAllocationHandle handle) {
  const auto found = State().physical.find(handle);
  return found == State().physical.end() || found->second.handles == 0 ? nullptr : &found->second;
}

void DropPhysical(CUmemGenericAllocationHandle handle) {
  const auto found = State().physical.find(handle);
  const PhysicalMemory memory = found->second;
  if (memory.handles > 0 || memory.mappings > 0) return;
  State().physical.erase(found);
  if (!memory.imported && IsLent(memory)) {
    State().lent.push_back(memory);
  } else {
    Free(memory);
  }
}

void ReclaimLent() {
  std::erase_if(State().lent, [](const PhysicalMemory& memory) {
    if (IsLent(memory)) return false;
    Free(memory);
    return true;
  });
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_EXPORT CUresult
cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                              CUmemAllocationGranularity_flags option) noexcept {
  SIMGPU_ENTER();
  if (granularity == nullptr || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(CheckProperties(properties));
  *granularity = kPhysicalGranularity;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                   const CUmemAllocationProp* properties,
                                   unsigned long long flags) noexcept {
  SIMGPU_ENTER();
  if (handle == nullptr || size == 0 || size % kPhysicalGranularity != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(CheckProperties(properties));
  PhysicalMemory memory;
  memory.size = size;
  memory.properties = *properties;
  memory.device = FindDevice(properties->location.id);
  SIMGPU_TRY(OpenMemory(memory.device));
  ReclaimLent();
  if (!memory.device->arena.Charge(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  memory.fd = ::memfd_create("simgpu-physical", MFD_CLOEXEC);
  if (memory.fd < 0 || ::ftruncate(memory.fd, static_cast<off_t>(size)) != 0) {
    Say("cuMemCreate of %zu bytes: %s", size, std::strerror(errno));
    if (memory.fd >= 0) ::close(memory.fd);
    memory.device->arena.Uncharge(size);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *handle = AddPhysical(memory);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) noexcept {
  SIMGPU_ENTER();
  PhysicalMemory* memory = FindPhysical(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --memory->handles;
  DropPhysical(handle);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) noexcept {
  SIMGPU_ENTER();
  const PhysicalMemory* memory = FindPhysical(handle);
  if (properties == nullptr || memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = memory->properties;
  return CUDA_SUCCESS;
}
