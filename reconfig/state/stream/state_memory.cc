// Reads, writes, hashes and identifies state; see state_memory.h.
#include "reconfig/state/stream/state_memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/log.h"
#include "reconfig/state/stream/content.h"
#include "reconfig/state/stream/device_hash.h"

namespace rewire::state {
namespace {

constexpr size_t kStagingBytes = 1 << 20;
// A copy is hashed while its bytes are in the device's cache: half of the cache at a time.
constexpr size_t kLeastHashBytes = 256 << 10;
constexpr size_t kDefaultHashBytes = 4 << 20;

size_t HashBytes(const CudaDriver& driver) {
  CUdevice device = 0;
  int cache = 0;
  const bool known =
      driver.CtxGetDevice(&device) == CUDA_SUCCESS &&
      driver.DeviceGetAttribute(&cache, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device) == CUDA_SUCCESS;
  if (!known || cache <= 0) return kDefaultHashBytes;
  // A multiple of the hash's word size.
  return std::max(kLeastHashBytes, static_cast<size_t>(cache) / 2 / 4096 * 4096);
}

absl::Status Check(const CudaDriver& driver, const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(driver.Describe(call, result));
}

}  // namespace

StateMemory::StateMemory(Duration patience) : patience_(patience) {}

StateMemory::~StateMemory() {
  if (driver_ == nullptr || context_ == nullptr) return;
  // At the end of a process the context may be gone, and then there is nothing to free. Unfinished
  // device work still uses these resources.
  if (!stuck_.empty() || driver_->CtxSetCurrent(context_) != CUDA_SUCCESS) {
    (void)hash_.release();
    return;
  }
  hash_.reset();
  if (sum_ != 0) driver_->MemFree(sum_);
  if (packed_ != 0) driver_->MemFree(packed_);
  if (stream_ != nullptr) driver_->StreamDestroy(stream_);
  if (staging_ != nullptr) driver_->MemFreeHost(staging_);
}

absl::Status StateMemory::Settle(const char* operation, size_t bytes) {
  const CUresult result = WaitForStream(*driver_, stream_, patience_);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const std::string text =
      DescribeWait(*driver_, absl::StrCat(operation, " of ", bytes, " bytes"), result, patience_);
  if (result != CUDA_ERROR_NOT_READY) return absl::InternalError(text);
  stuck_ = text;
  return absl::DeadlineExceededError(text);
}

absl::Status StateMemory::UseDevice(CUcontext context) {
  if (!stuck_.empty()) return absl::DeadlineExceededError(stuck_);
  if (driver_ == nullptr) {
    std::string error;
    driver_ = CudaDriver::Get(&error);
    if (driver_ == nullptr) return absl::UnavailableError(error);
    // A graph that the program captures on another thread must not forbid calls of this thread.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver_->ThreadExchangeStreamCaptureMode(&mode);
  }
  if (context_ == context) return absl::OkStatus();
  if (context_ != nullptr) {
    return absl::UnimplementedError("access state: state in the memory of more than one device");
  }
  absl::Status status = Check(*driver_, "cuCtxSetCurrent", driver_->CtxSetCurrent(context));
  if (!status.ok()) return status;
  int least = 0;
  int greatest = 0;
  driver_->CtxGetStreamPriorityRange(&least, &greatest);
  status = Check(*driver_, "cuStreamCreateWithPriority",
                 driver_->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, least));
  if (!status.ok()) return status;
  status = Check(*driver_, "cuMemHostAlloc", driver_->MemHostAlloc(&staging_, kStagingBytes, 0));
  if (status.ok()) context_ = context;
  return status;
}

absl::Status StateMemory::Warm(CUcontext context) {
  absl::Status status = UseDevice(context);
  if (!status.ok() || hash_made_) return status;
  status = Check(*driver_, "cuMemAlloc", driver_->MemAlloc(&sum_, sizeof(uint64_t)));
  if (!status.ok()) return status;
  hash_made_ = true;
  hash_bytes_ = HashBytes(*driver_);
  std::string why;
  hash_ = DeviceHash::Load(*driver_, &why);
  if (hash_ == nullptr) {
    static std::once_flag said;
    std::call_once(said, [&] {
      REWIRE_WARN("load hash kernel: %s (state is hashed on the host, which takes longer)",
                  why.c_str());
    });
  }
  return absl::OkStatus();
}

absl::Status StateMemory::Read(const StatePlace& from, void* to, size_t bytes) {
  return Visit(from, bytes, [to](const char* data, size_t at, size_t n) {
    std::memcpy(static_cast<char*>(to) + at, data, n);
    return absl::OkStatus();
  });
}

absl::Status StateMemory::Visit(const StatePlace& from, size_t bytes, const Use& use) {
  if (bytes == 0) return absl::OkStatus();
  if (from.kind == MemoryKind::kHost) return use(from.data, 0, bytes);
  if (absl::Status s = UseDevice(from.context); !s.ok()) return s;
  for (size_t at = 0; at < bytes; at += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, bytes - at);
    absl::Status s =
        Check(*driver_, "cuMemcpyDtoHAsync",
              driver_->MemcpyDtoHAsync(staging_, reinterpret_cast<CUdeviceptr>(from.data) + at, n,
                                       stream_));
    if (s.ok()) s = Settle("copy from device memory", n);
    if (s.ok()) s = use(static_cast<const char*>(staging_), at, n);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status StateMemory::Write(const void* from, const StatePlace& to, size_t bytes) {
  if (to.kind == MemoryKind::kHost) {
    if (bytes > 0) std::memcpy(to.data, from, bytes);
    return absl::OkStatus();
  }
  if (absl::Status s = UseDevice(to.context); !s.ok()) return s;
  for (size_t at = 0; at < bytes; at += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, bytes - at);
    const char* piece = static_cast<const char*>(from) + at;
    if (piece != staging_) std::memcpy(staging_, piece, n);
    absl::Status s = Check(*driver_, "cuMemcpyHtoDAsync",
                           driver_->MemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(to.data) + at,
                                                    staging_, n, stream_));
    if (s.ok()) s = Settle("copy to device memory", n);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status StateMemory::Hash(const StatePlace& place, size_t bytes, uint64_t offset,
                               uint64_t* content) {
  *content = 0;
  if (place.kind == MemoryKind::kDevice && bytes > 0) {
    if (absl::Status s = Warm(place.context); !s.ok()) return s;
    if (hash_ != nullptr) return HashOnDevice(place, place, bytes, offset, content);
  }
  return Visit(place, bytes, [&](const char* data, size_t at, size_t n) {
    *content += HashContent(data, n, offset + at);
    return absl::OkStatus();
  });
}

absl::Status StateMemory::CopyHashed(const StatePlace& from, const StatePlace& to, size_t bytes,
                                     uint64_t offset, uint64_t* content) {
  *content = 0;
  if (from.kind == MemoryKind::kDevice && bytes > 0) {
    const bool to_device = to.kind == MemoryKind::kDevice;
    if (absl::Status s = Warm(to_device ? to.context : from.context); !s.ok()) return s;
    if (hash_ != nullptr) return HashOnDevice(from, to, bytes, offset, content);
  }
  return Visit(from, bytes, [&](const char* data, size_t at, size_t n) {
    *content += HashContent(data, n, offset + at);
    return Write(data, to.At(at), n);
  });
}

absl::Status StateMemory::HashOnDevice(const StatePlace& from, const StatePlace& to, size_t bytes,
                                       uint64_t offset, uint64_t* content) {
  const bool to_device = to.kind == MemoryKind::kDevice;
  absl::Status s = Check(*driver_, "cuMemsetD8Async",
                         driver_->MemsetD8Async(sum_, 0, sizeof(uint64_t), stream_));
  for (size_t at = 0; s.ok() && at < bytes; at += hash_bytes_) {
    const size_t n = std::min(hash_bytes_, bytes - at);
    const auto source = reinterpret_cast<CUdeviceptr>(from.data) + at;
    const auto hashed = reinterpret_cast<CUdeviceptr>(to_device ? to.data : from.data) + at;
    if (to_device && hashed != source) {
      s = Check(*driver_, "cuMemcpyDtoDAsync",
                driver_->MemcpyDtoDAsync(hashed, source, n, stream_));
    }
    if (s.ok()) {
      s = Check(*driver_, "cuLaunchKernel", hash_->Launch(hashed, n, offset + at, sum_, stream_));
    }
    if (s.ok() && !to_device) {
      s = Check(*driver_, "cuMemcpyDtoHAsync",
                driver_->MemcpyDtoHAsync(to.data + at, source, n, stream_));
    }
  }
  if (s.ok()) {
    s = Check(*driver_, "cuMemcpyDtoHAsync",
              driver_->MemcpyDtoHAsync(staging_, sum_, sizeof(uint64_t), stream_));
  }
  // Wait also after a failure, because unfinished work must not touch the state later.
  const absl::Status waited = Settle("hash of device memory", bytes);
  if (s.ok()) s = waited;
  if (s.ok()) std::memcpy(content, staging_, sizeof(uint64_t));
  return s;
}

absl::Status StateMemory::Clear(const StatePlace& place, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (place.kind == MemoryKind::kHost) {
    std::memset(place.data, 0, bytes);
    return absl::OkStatus();
  }
  if (absl::Status s = UseDevice(place.context); !s.ok()) return s;
  absl::Status s =
      Check(*driver_, "cuMemsetD8Async",
            driver_->MemsetD8Async(reinterpret_cast<CUdeviceptr>(place.data), 0, bytes, stream_));
  if (s.ok()) s = Settle("clearing of device memory", bytes);
  return s;
}

uint64_t AllocationOf(const StatePlace& place) {
  if (place.kind != MemoryKind::kDevice || place.data == nullptr) return 0;
  std::string error;
  const CudaDriver* const driver = CudaDriver::Get(&error);
  // The program's own threads also call this function and keep their context.
  CUcontext before = nullptr;
  if (driver == nullptr || driver->CtxGetCurrent(&before) != CUDA_SUCCESS ||
      driver->CtxSetCurrent(place.context) != CUDA_SUCCESS) {
    return 0;
  }
  unsigned long long number = 0;
  const CUresult result = driver->PointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                                      reinterpret_cast<CUdeviceptr>(place.data));
  driver->CtxSetCurrent(before);
  return result == CUDA_SUCCESS ? number : 0;
}

absl::Status CheckAllocation(std::string_view tensor, const StatePlace& place,
                             uint64_t allocation) {
  if (allocation == 0 || AllocationOf(place) == allocation) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("tensor ", std::string(tensor), ": the registered memory at 0x",
                   absl::Hex(reinterpret_cast<uintptr_t>(place.data)),
                   " was freed or allocated again (a registered tensor must keep its memory)"));
}

}  // namespace rewire::state
