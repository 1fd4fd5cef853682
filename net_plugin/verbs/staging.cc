#include "net_plugin/verbs/staging.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "reconfig/base/check.h"
#include "reconfig/base/log.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {
namespace {

// Allowance for the copying thread to be scheduled.
Duration ThreadPatience(Duration patience) {
  return std::min<Duration>(seconds(10), 10 * patience);
}

std::string CopyOf(size_t bytes) {
  return "copy of " + std::to_string(bytes) + " bytes of device memory";
}

const CudaDriver* Driver() {
  std::string unused;
  return CudaDriver::Get(&unused);
}

// Returns the context's stream, created once and never destroyed. The stream is non-blocking, so
// the copies wait neither for kernels nor for the program's copies.
CUresult StreamOf(const CudaDriver& driver, CUcontext context, CUstream* stream) {
  static auto* const mutex = new Mutex;
  static auto* const streams = new std::map<CUcontext, CUstream>;
  MutexLock lock(mutex);
  CUstream& made = (*streams)[context];
  if (made == nullptr) {
    int least = 0;
    int greatest = 0;
    driver.CtxGetStreamPriorityRange(&least, &greatest);
    const CUresult result =
        driver.StreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, greatest);
    if (result != CUDA_SUCCESS) return result;
  }
  *stream = made;
  return CUDA_SUCCESS;
}

// The context of memory mapped by pages is unknown; the device's primary context is used then.
CUresult Enter(const CudaDriver& driver, CUdeviceptr memory, CUcontext* context) {
  CUresult result = driver.PointerGetAttribute(context, CU_POINTER_ATTRIBUTE_CONTEXT, memory);
  if (result != CUDA_SUCCESS || *context == nullptr) {
    int device = 0;
    result = driver.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory);
    if (result == CUDA_SUCCESS) result = driver.DevicePrimaryCtxRetain(context, device);
  }
  return result == CUDA_SUCCESS ? driver.CtxSetCurrent(*context) : result;
}

// Returns an empty string, or the error.
std::string Copy(const CudaDriver& driver, char* host, const void* device, size_t bytes, bool fetch,
                 Duration patience, bool* stuck) {
  const auto memory = reinterpret_cast<CUdeviceptr>(device);
  // Relaxed mode: the copy must not disturb a graph capture by another thread of the program.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.ThreadExchangeStreamCaptureMode(&mode);
  CUcontext before = nullptr;
  driver.CtxGetCurrent(&before);
  // The thread may be NCCL's (RunCopy).
  const absl::Cleanup restore = [&] {
    driver.CtxSetCurrent(before);
    driver.ThreadExchangeStreamCaptureMode(&mode);
  };
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUresult result = Enter(driver, memory, &context);
  if (result == CUDA_SUCCESS) result = StreamOf(driver, context, &stream);
  if (result == CUDA_SUCCESS) {
    result = fetch ? driver.MemcpyDtoHAsync(host, memory, bytes, stream)
                   : driver.MemcpyHtoDAsync(memory, host, bytes, stream);
  }
  if (result == CUDA_SUCCESS) {
    result = WaitForStream(driver, stream, patience);
    *stuck = result == CUDA_ERROR_NOT_READY;
  }
  if (result == CUDA_SUCCESS) return "";
  return DescribeWait(driver, CopyOf(bytes), result, patience);
}

}  // namespace

// Shared with the copying thread, which may run after the connection is gone.
struct Staging::Shared {
  Mutex mutex;
  CondVar copied;
  bool gone REWIRE_GUARDED_BY(mutex) = false;
  bool copying REWIRE_GUARDED_BY(mutex) = false;
  std::vector<char> bytes;
  std::string error;
  std::atomic<bool> done{false};
};

Staging::Staging(std::function<void(std::function<void()>)> run, Duration patience)
    : run_(std::move(run)), patience_(patience), shared_(std::make_shared<Shared>()) {}

Staging::~Staging() {
  const Duration longest = patience_ + ThreadPatience(patience_);
  const Time deadline = Now() + longest;
  MutexLock lock(&shared_->mutex);
  shared_->gone = true;
  while (shared_->copying) {
    if (shared_->copied.WaitUntil(&shared_->mutex, deadline) || !shared_->copying) continue;
    REWIRE_ERROR(
        "close connection: a copy of device memory did not end within %.0f ms; its host memory is "
        "kept",
        ToMilliseconds(longest));
    return;
  }
}

bool Staging::Possible() { return Driver() != nullptr; }

char* Staging::Room(size_t bytes) {
  REWIRE_CHECK(!busy_);  // a copy uses the memory
  if (shared_->bytes.size() < bytes) shared_->bytes.resize(bytes);
  return shared_->bytes.data();
}

void Staging::Begin(const void* device, size_t bytes, bool fetch) {
  (void)Room(bytes);
  busy_ = true;
  bytes_ = bytes;
  until_ = Now() + patience_;
  shared_->done.store(false, std::memory_order_relaxed);
  run_([shared = shared_, device, bytes, fetch, patience = patience_] {
    {
      MutexLock lock(&shared->mutex);
      if (shared->gone) return;
      shared->copying = true;
    }
    bool stuck = false;
    shared->error = Copy(*Driver(), shared->bytes.data(), device, bytes, fetch, patience, &stuck);
    shared->done.store(true, std::memory_order_release);
    // Leaks a reference on purpose: the device may still use the host memory.
    if (stuck) (void)new std::shared_ptr<Shared>(shared);
    MutexLock lock(&shared->mutex);
    shared->copying = false;
    shared->copied.NotifyAll();
  });
}

void Staging::Fetch(const void* from, size_t bytes) { Begin(from, bytes, true); }
void Staging::Store(void* to, size_t bytes) { Begin(to, bytes, false); }

std::optional<absl::Status> Staging::Ended() {
  if (!busy_) return std::nullopt;
  if (!shared_->done.load(std::memory_order_acquire)) {
    if (Now() < until_) return std::nullopt;
    return absl::DeadlineExceededError(
        DescribeWait(*Driver(), CopyOf(bytes_), CUDA_ERROR_NOT_READY, patience_));
  }
  busy_ = false;
  if (shared_->error.empty()) return absl::OkStatus();
  return absl::InternalError(shared_->error);
}

}  // namespace rewire::net
