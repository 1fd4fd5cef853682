// Streams that write words of memory and wait for them, in this process and in others. A waiting
// stream checks the word when a writing stream wakes it, and every millisecond, because a word may
// also be written in other ways. Thread-safe.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "tests/simgpu/cuda/capture.h"
#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

bool Holds(uint64_t seen, uint64_t value, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<int64_t>(seen - value) >= 0;  // cyclic, as documented
    case CU_STREAM_WAIT_VALUE_EQ:
      return seen == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (seen & value) != 0;
    default:
      return ~(seen | value) != 0;
  }
}

void WaitForWord(const uint64_t* word, uint64_t value, unsigned condition) {
  while (true) {
    const uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (Holds(seen, value, condition)) return;
    const timespec patience{0, 1000000};
    ::syscall(SYS_futex, word, FUTEX_WAIT, static_cast<uint32_t>(seen), &patience, nullptr, 0);
  }
}

// Finds the stream and the word's stamp.
CUresult Prepare(CUstream handle, CUdeviceptr address, CUmemAccess_flags access, Stream** stream,
                 uint64_t** stamp) REWIRE_REQUIRES(driver_mutex) {
  if (address == 0 || address % sizeof(uint64_t) != 0) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(FindStreamForWork(handle, stream));
  if (!IsAccessible((*stream)->device, address, sizeof(uint64_t), access)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *stamp = FindStamp(address);
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT CUresult cuStreamWaitValue64_v2(CUstream handle, CUdeviceptr address, uint64_t value,
                                              unsigned int flags) noexcept {
  SIMGPU_ENTER();
  if (flags > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  uint64_t* stamp = nullptr;
  SIMGPU_TRY(Prepare(handle, address, CU_MEM_ACCESS_FLAGS_PROT_READ, &stream, &stamp));
  Operation operation;
  operation.work = [address, value, flags, stamp](uint64_t* clock) {
    WaitForWord(reinterpret_cast<const uint64_t*>(address), value, flags);
    if (stamp != nullptr) *clock = std::max(*clock, __atomic_load_n(stamp, __ATOMIC_RELAXED));
  };
  stream->Enqueue(std::move(operation));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuStreamWriteValue64_v2(CUstream handle, CUdeviceptr address, uint64_t value,
                                               unsigned int flags) noexcept {
  SIMGPU_ENTER();
  if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  uint64_t* stamp = nullptr;
  SIMGPU_TRY(Prepare(handle, address, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &stream, &stamp));
  Operation operation;
  operation.work = [address, value, stamp](const uint64_t* clock) {
    if (stamp != nullptr) __atomic_store_n(stamp, *clock, __ATOMIC_RELAXED);
    auto* const word = reinterpret_cast<uint64_t*>(address);
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  };
  stream->Enqueue(std::move(operation));
  return CUDA_SUCCESS;
}
