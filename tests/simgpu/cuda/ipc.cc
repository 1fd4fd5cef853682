// Device memory of another process. The handle names the owner's memory file and the directory
// record of the allocation. The cookies in both must agree, so that a handle of a dead process, of
// freed memory, or an invented handle, is refused. Thread-safe.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/simgpu/cuda/capture.h"
#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

constexpr uint64_t kMagic = 0x6d696e6732637069;
constexpr size_t kPage = 4096;

struct Payload {
  uint64_t magic;
  int32_t pid;
  int32_t fd;
  uint64_t record;
  uint64_t cookie[2];
  int32_t device;
  char unused[20];
};
static_assert(sizeof(Payload) == CU_IPC_HANDLE_SIZE);

// Opens the memory file of another process and reads the handle's record.
CUresult OpenFile(const Payload& payload, int* fd, ExportRecord* record) {
  const std::string path =
      "/proc/" + std::to_string(payload.pid) + "/fd/" + std::to_string(payload.fd);
  *fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (*fd < 0) return CUDA_ERROR_MAP_FAILED;
  const auto at = static_cast<off_t>(payload.record * sizeof(ExportRecord));
  const bool read =
      ::pread(*fd, record, sizeof *record, at) == static_cast<ssize_t>(sizeof *record);
  if (read && record->size != 0 &&
      std::memcmp(record->cookie, payload.cookie, sizeof payload.cookie) == 0) {
    return CUDA_SUCCESS;
  }
  ::close(*fd);
  return CUDA_ERROR_MAP_FAILED;
}

// Maps the stamps of the words at [offset, offset + bytes), from the second half of the file.
// Returns null if the system has no memory for the mapping; then the words have no stamps.
char* MapStamps(int fd, size_t offset, size_t bytes) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return nullptr;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                        file.st_size / 2 + static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
}

}  // namespace

SIMGPU_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) noexcept {
  SIMGPU_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t base = 0;
  const Allocation* allocation = FindAllocation(pointer, 1, &base);
  if (allocation == nullptr || allocation->kind != MemoryKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Arena& arena = allocation->device->arena;
  const std::optional<size_t> number =
      arena.Export(reinterpret_cast<char*>(base), allocation->size);
  if (!number.has_value()) return CUDA_ERROR_OUT_OF_MEMORY;
  const ExportRecord& record = arena.record(*number);
  Payload payload{};
  payload.magic = kMagic;
  payload.pid = ::getpid();
  payload.fd = arena.fd();
  payload.record = *number;
  std::memcpy(payload.cookie, record.cookie, sizeof payload.cookie);
  payload.device = allocation->device->ordinal;
  std::memcpy(handle, &payload, sizeof payload);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle,
                                             unsigned int flags) noexcept {
  SIMGPU_ENTER();
  if (pointer == nullptr || (flags & ~unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  SIMGPU_TRY(CheckUnsafeCall());
  Payload payload;
  std::memcpy(&payload, &handle, sizeof payload);
  if (payload.magic != kMagic || payload.record >= kExportRecords) return CUDA_ERROR_INVALID_VALUE;
  if (payload.pid == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // as documented
  for (auto& [base, allocation] : State().allocations) {
    if (allocation.kind != MemoryKind::kImported || allocation.context != context->handle ||
        std::memcmp(&allocation.handle, &handle, sizeof handle) != 0) {
      continue;
    }
    ++allocation.references;  // one mapping serves all openers
    *pointer = base;
    return CUDA_SUCCESS;
  }
  DropClosedMappings();
  int fd = -1;
  ExportRecord record{};
  SIMGPU_TRY(OpenFile(payload, &fd, &record));
  const size_t skipped = record.offset % kPage;
  Allocation allocation;
  allocation.mapping_size = record.size + skipped;
  // The mapping is populated: a peer's memory is mapped as a whole, not page by page at its first
  // use.
  allocation.mapping =
      ::mmap(nullptr, allocation.mapping_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
             fd, static_cast<off_t>(record.offset - skipped));
  if (allocation.mapping != MAP_FAILED && State().settings.virtual_clock()) {
    allocation.stamps = MapStamps(fd, record.offset - skipped, allocation.mapping_size);
  }
  ::close(fd);
  if (allocation.mapping == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  allocation.kind = MemoryKind::kImported;
  allocation.size = record.size;
  allocation.context = context->handle;
  allocation.device = context->device;
  if (Device* owner = FindDevice(payload.device)) allocation.device = owner;
  allocation.id = State().next_id++;
  allocation.references = 1;
  allocation.handle = handle;
  const uintptr_t base = reinterpret_cast<uintptr_t>(allocation.mapping) + skipped;
  State().allocations[base] = allocation;
  *pointer = base;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) noexcept {
  SIMGPU_ENTER();
  Allocation* allocation = FindAllocationAt(pointer);
  if (allocation == nullptr || allocation->kind != MemoryKind::kImported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--allocation->references == 0) FreeAllocation(pointer);
  return CUDA_SUCCESS;
}
