// Physical memory of another process, by file descriptor. A record after the memory in its file
// describes the memory, so that the descriptor alone, from any source, is sufficient. Thread-safe.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/physical_memory.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

constexpr uint64_t kMagic = 0x6d656d2d75706773;

struct Record {
  uint64_t magic;
  uint64_t size;
  CUmemAllocationProp properties;
};

// Returns false if the descriptor is of another kind of file.
bool ReadRecord(int fd, Record* record) {
  struct stat file {};
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return false;
  const off_t size = file.st_size - static_cast<off_t>(sizeof *record);
  return size > 0 && ::pread(fd, record, sizeof *record, size) == ssize_t{sizeof *record} &&
         record->magic == kMagic && record->size == static_cast<uint64_t>(size);
}

}  // namespace

SIMGPU_EXPORT CUresult cuMemExportToShareableHandle(void* shareable,
                                                    CUmemGenericAllocationHandle handle,
                                                    CUmemAllocationHandleType type,
                                                    unsigned long long flags) noexcept {
  SIMGPU_ENTER();
  const PhysicalMemory* memory = FindPhysical(handle);
  if (shareable == nullptr || memory == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (memory->properties.requestedHandleTypes != type) return CUDA_ERROR_INVALID_VALUE;
  const Record record{kMagic, memory->size, memory->properties};
  const int fd = LendPhysical(*memory);
  if (fd < 0 || ::pwrite(fd, &record, sizeof record, static_cast<off_t>(memory->size)) !=
                    ssize_t{sizeof record}) {
    Say("cuMemExportToShareableHandle: %s", std::strerror(errno));
    if (fd >= 0) ::close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(shareable) = fd;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                      void* shareable,
                                                      CUmemAllocationHandleType type) noexcept {
  SIMGPU_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  Record record{};
  if (!ReadRecord(fd, &record)) return CUDA_ERROR_INVALID_VALUE;
  PhysicalMemory memory;
  memory.size = record.size;
  memory.properties = record.properties;
  memory.device = FindDevice(record.properties.location.id);
  // The device is not one of this process's.
  if (memory.device == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  memory.imported = true;
  memory.fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);  // the caller keeps and closes its own descriptor
  if (memory.fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *handle = AddPhysical(memory);
  return CUDA_SUCCESS;
}
