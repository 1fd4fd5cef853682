// Copies and fills. Each is one operation of its stream. The synchronous calls use the legacy
// stream and wait for it, except between device addresses: there the real driver does not wait
// either.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "tests/simgpu/cuda/capture.h"
#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/reservation.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

enum class Side { kHost, kDevice, kAny };
enum class Call { kAsync, kAsyncWait, kSyncNoWait, kSyncWait };

constexpr CUmemAccess_flags kRead = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr CUmemAccess_flags kWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

// A device address must lie in memory that the device may use. With kDevice, the address may also
// be in page-locked host memory, as with unified addressing.
CUresult Check(const Device* device, CUdeviceptr pointer, size_t size, Side side,
               CUmemAccess_flags wanted) REWIRE_REQUIRES(driver_mutex) {
  if (size == 0) return CUDA_SUCCESS;
  if (pointer == 0) return CUDA_ERROR_INVALID_VALUE;
  if (IsAccessible(device, pointer, size, wanted)) return CUDA_SUCCESS;
  if (side == Side::kDevice) return CUDA_ERROR_INVALID_VALUE;
  // The driver does not know pageable host memory. A range that begins in known memory must not run
  // past it.
  const bool known = FindAllocation(pointer, 1, nullptr) != nullptr || IsReserved(pointer, 1);
  return known ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Other streams may be waiting for these words: each word is written separately and as a whole.
bool AreWords(CUdeviceptr target, size_t size) {
  constexpr size_t kMost = 4096;
  return target % sizeof(uint64_t) == 0 && size % sizeof(uint64_t) == 0 && size <= kMost;
}

void Move(CUdeviceptr target, CUdeviceptr source, size_t size) {
  const bool apart = source + size <= target || target + size <= source;
  if (!AreWords(target, size) || !apart) {
    std::memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), size);
    return;
  }
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const void*>(source + i), sizeof word);
    __atomic_store_n(reinterpret_cast<uint64_t*>(target + i), word, __ATOMIC_RELEASE);
  }
}

CUresult Enqueue(CUstream handle, Call call, uint64_t cost, Work work)
    REWIRE_REQUIRES(driver_mutex) {
  if (call == Call::kSyncNoWait || call == Call::kSyncWait) SIMGPU_TRY(CheckUnsafeCall());
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStreamForWork(handle, &stream));
  Operation operation;
  operation.cost = cost;
  operation.work = std::move(work);
  const MarkerRef done = stream->Enqueue(std::move(operation));
  if (call == Call::kSyncWait || call == Call::kAsyncWait) WaitFor(done);
  return CUDA_SUCCESS;
}

// Counts the bytes and returns the copy's virtual time. A copy from or to another process's device
// is a peer copy, a copy within a device is a local copy, and a copy with the host takes no time.
uint64_t CountCopy(CUdeviceptr target, CUdeviceptr source, size_t size)
    REWIRE_REQUIRES(driver_mutex) {
  const Allocation* const to = FindAllocation(target, 1, nullptr);
  const Allocation* const from = FindAllocation(source, 1, nullptr);
  if (to == nullptr || from == nullptr || !to->OnDevice() || !from->OnDevice()) return 0;
  const bool peer = to->device != from->device || to->kind == MemoryKind::kImported ||
                    from->kind == MemoryKind::kImported;
  (peer ? State().counts.peer_bytes : State().counts.local_bytes) += size;
  const Settings& settings = State().settings;
  const uint64_t mbps = peer ? settings.peer_mbps : settings.local_mbps;
  return mbps == 0 ? 0 : size * 1000 / mbps;
}

CUresult EnqueueCopy(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream,
                     Call call) REWIRE_REQUIRES(driver_mutex) {
  return Enqueue(stream, call, CountCopy(target, source, size),
                 [target, source, size](uint64_t*) { Move(target, source, size); });
}

bool IsPageable(CUdeviceptr pointer) REWIRE_REQUIRES(driver_mutex) {
  return FindAllocation(pointer, 1, nullptr) == nullptr && !IsReserved(pointer, 1);
}

// An asynchronous copy from pageable memory has read its source when the call returns (CUDA driver
// API, "API synchronization behavior"): NCCL passes addresses of its stack.
CUresult EnqueueStaged(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream)
    REWIRE_REQUIRES(driver_mutex) {
  const auto* const bytes = reinterpret_cast<const char*>(source);
  auto staged = std::make_shared<const std::vector<char>>(bytes, bytes + size);
  return Enqueue(stream, Call::kAsync, 0, [target, staged](uint64_t*) {
    Move(target, Address(staged->data()), staged->size());
  });
}

CUresult Copy(CUdeviceptr target, Side target_side, CUdeviceptr source, Side source_side,
              size_t size, CUstream stream, Call call) {
  SIMGPU_ENTER();
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  SIMGPU_TRY(Check(context->device, target, size, target_side, kWrite));
  SIMGPU_TRY(Check(context->device, source, size, source_side, kRead));
  if (call == Call::kAsync && size > 0 && IsPageable(source)) {
    return EnqueueStaged(target, source, size, stream);
  }
  // An asynchronous copy into pageable memory is complete when the call returns (same source).
  if (call == Call::kAsync && size > 0 && IsPageable(target)) call = Call::kAsyncWait;
  return EnqueueCopy(target, source, size, stream, call);
}

CUresult CopyPeer(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                  CUcontext source_context, size_t size, CUstream stream, Call call) {
  SIMGPU_ENTER();
  const Context* to = FindContext(target_context);
  const Context* from = FindContext(source_context);
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  SIMGPU_TRY(Check(to->device, target, size, Side::kDevice, kWrite));
  SIMGPU_TRY(Check(from->device, source, size, Side::kDevice, kRead));
  return EnqueueCopy(target, source, size, stream, call);
}

template <typename T>
CUresult Fill(CUdeviceptr target, T value, size_t count, CUstream stream, Call call) {
  SIMGPU_ENTER();
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  if (target % sizeof(T) != 0 || count > SIZE_MAX / sizeof(T)) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(Check(context->device, target, count * sizeof(T), Side::kDevice, kWrite));
  return Enqueue(stream, call, 0, [target, value, count](uint64_t*) {
    auto* const elements = reinterpret_cast<T*>(target);
    if (!AreWords(target, count * sizeof(T))) {
      std::fill_n(elements, count, value);
      return;
    }
    T word[sizeof(uint64_t) / sizeof(T)];
    std::fill(std::begin(word), std::end(word), value);
    for (size_t i = 0; i < count * sizeof(T); i += sizeof word) {
      Move(target + i, Address(word), sizeof word);
    }
  });
}

CUresult CopyBatch(const CUdeviceptr* targets, const CUdeviceptr* sources, const size_t* sizes,
                   size_t count, const CUmemcpyAttributes* attributes, const size_t* indices,
                   size_t attribute_count, size_t* failed, CUstream handle) {
  SIMGPU_ENTER();
  if (failed != nullptr) *failed = SIZE_MAX;
  Stream* stream = nullptr;
  // The default stream is refused, as documented.
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  if (targets == nullptr || sources == nullptr || sizes == nullptr || count == 0 ||
      attributes == nullptr || indices == nullptr || attribute_count == 0 ||
      attribute_count > count || indices[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < attribute_count; ++i) {
    const auto order = attributes[i].srcAccessOrder;
    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
        indices[i] >= count || (i > 0 && indices[i] <= indices[i - 1])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  SIMGPU_TRY(FindStreamForWork(handle, &stream));
  const Device* const device = stream->device;
  for (size_t i = 0; i < count; ++i) {
    CUresult result = sizes[i] == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) result = Check(device, targets[i], sizes[i], Side::kAny, kWrite);
    if (result == CUDA_SUCCESS) result = Check(device, sources[i], sizes[i], Side::kAny, kRead);
    if (result == CUDA_SUCCESS) continue;
    if (failed != nullptr) *failed = i;
    return result;
  }
  bool during_call = false;
  for (size_t i = 0; i < attribute_count; ++i) {
    during_call |= attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  }
  Operation operation;
  operation.work = [to = std::vector(targets, targets + count),
                    from = std::vector(sources, sources + count),
                    bytes = std::vector(sizes, sizes + count)](uint64_t*) {
    for (size_t i = 0; i < to.size(); ++i) {
      Move(to[i], from[i], bytes[i]);
    }
  };
  for (size_t i = 0; i < count; ++i) {
    operation.cost += CountCopy(targets[i], sources[i], sizes[i]);
  }
  const MarkerRef done = stream->Enqueue(std::move(operation));
  if (during_call) WaitFor(done);  // the sources are valid only until this returns
  return CUDA_SUCCESS;
}

// Only between device addresses, which is all that Rewire uses.
CUresult CopyRows(const CUDA_MEMCPY2D* copy, CUstream handle) {
  SIMGPU_ENTER();
  if (copy == nullptr || copy->srcMemoryType != CU_MEMORYTYPE_DEVICE ||
      copy->dstMemoryType != CU_MEMORYTYPE_DEVICE || copy->WidthInBytes > copy->srcPitch ||
      copy->WidthInBytes > copy->dstPitch) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (copy->WidthInBytes == 0 || copy->Height == 0) return CUDA_SUCCESS;
  Stream* stream = nullptr;
  SIMGPU_TRY(FindStreamForWork(handle, &stream));
  const CUdeviceptr from = copy->srcDevice + copy->srcY * copy->srcPitch + copy->srcXInBytes;
  const CUdeviceptr to = copy->dstDevice + copy->dstY * copy->dstPitch + copy->dstXInBytes;
  const size_t width = copy->WidthInBytes;
  const size_t rows = copy->Height;
  const size_t read = (rows - 1) * copy->srcPitch + width;
  const size_t written = (rows - 1) * copy->dstPitch + width;
  SIMGPU_TRY(Check(stream->device, from, read, Side::kDevice, kRead));
  SIMGPU_TRY(Check(stream->device, to, written, Side::kDevice, kWrite));
  return Enqueue(
      handle, Call::kAsync, CountCopy(to, from, width * rows),
      [from, to, width, rows, pitch = copy->srcPitch, to_pitch = copy->dstPitch](uint64_t*) {
        for (size_t row = 0; row < rows; ++row) {
          Move(to + row * to_pitch, from + row * pitch, width);
        }
      });
}

}  // namespace

SIMGPU_EXPORT CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t size) noexcept {
  return Copy(target, Side::kAny, source, Side::kAny, size, nullptr, Call::kSyncWait);
}

SIMGPU_EXPORT CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t size,
                                     CUstream stream) noexcept {
  return Copy(target, Side::kAny, source, Side::kAny, size, stream, Call::kAsync);
}

SIMGPU_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void* source,
                                       size_t size) noexcept {
  return Copy(target, Side::kDevice, Address(source), Side::kHost, size, nullptr, Call::kSyncWait);
}

SIMGPU_EXPORT CUresult cuMemcpyDtoH_v2(void* target, CUdeviceptr source, size_t size) noexcept {
  return Copy(Address(target), Side::kHost, source, Side::kDevice, size, nullptr, Call::kSyncWait);
}

SIMGPU_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source,
                                       size_t size) noexcept {
  return Copy(target, Side::kDevice, source, Side::kDevice, size, nullptr, Call::kSyncNoWait);
}

SIMGPU_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, size_t size,
                                            CUstream stream) noexcept {
  return Copy(target, Side::kDevice, Address(source), Side::kHost, size, stream, Call::kAsync);
}

SIMGPU_EXPORT CUresult cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, size_t size,
                                            CUstream stream) noexcept {
  return Copy(Address(target), Side::kHost, source, Side::kDevice, size, stream, Call::kAsync);
}

SIMGPU_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size,
                                            CUstream stream) noexcept {
  return Copy(target, Side::kDevice, source, Side::kDevice, size, stream, Call::kAsync);
}

SIMGPU_EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) noexcept {
  return CopyRows(copy, stream);
}

SIMGPU_EXPORT CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext target_context,
                                    CUdeviceptr source, CUcontext source_context,
                                    size_t size) noexcept {
  return CopyPeer(target, target_context, source, source_context, size, nullptr, Call::kSyncNoWait);
}

SIMGPU_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context,
                                         CUdeviceptr source, CUcontext source_context, size_t size,
                                         CUstream stream) noexcept {
  return CopyPeer(target, target_context, source, source_context, size, stream, Call::kAsync);
}

SIMGPU_EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr* targets, CUdeviceptr* sources, size_t* sizes,
                                          size_t count, CUmemcpyAttributes* attributes,
                                          size_t* indices, size_t attribute_count, size_t* failed,
                                          CUstream stream) noexcept {
  return CopyBatch(targets, sources, sizes, count, attributes, indices, attribute_count, failed,
                   stream);
}

SIMGPU_EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* targets, CUdeviceptr* sources,
                                             size_t* sizes, size_t count,
                                             CUmemcpyAttributes* attributes, size_t* indices,
                                             size_t attribute_count, CUstream stream) noexcept {
  return CopyBatch(targets, sources, sizes, count, attributes, indices, attribute_count, nullptr,
                   stream);
}

SIMGPU_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value,
                                     size_t count) noexcept {
  return Fill(target, value, count, nullptr, Call::kSyncNoWait);
}

SIMGPU_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned int value,
                                      size_t count) noexcept {
  return Fill(target, value, count, nullptr, Call::kSyncNoWait);
}

SIMGPU_EXPORT CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count,
                                       CUstream stream) noexcept {
  return Fill(target, value, count, stream, Call::kAsync);
}

SIMGPU_EXPORT CUresult cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count,
                                        CUstream stream) noexcept {
  return Fill(target, value, count, stream, Call::kAsync);
}
