#include "shim/preload/capture.h"

#include <dlfcn.h>

#include <atomic>

#include "reconfig/base/settings.h"

namespace rewire::shim {

namespace {

// CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus*); 0 is success, status 0 is none.
using StreamIsCapturing = int (*)(cudaStream_t stream, int* status);
std::atomic<StreamIsCapturing> stream_is_capturing{nullptr};

}  // namespace

bool FindDriver() noexcept {
  if (stream_is_capturing.load(std::memory_order_relaxed) != nullptr) return true;
  // RTLD_NOLOAD: a process without a driver captures nothing, so this call never loads the driver.
  void* driver = dlopen(Settings::Get().cuda_library().c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  stream_is_capturing.store(
      reinterpret_cast<StreamIsCapturing>(dlsym(driver, "cuStreamIsCapturing")),
      std::memory_order_release);
  return stream_is_capturing.load(std::memory_order_relaxed) != nullptr;
}

bool IsCapturing(cudaStream_t stream) noexcept {
  const StreamIsCapturing ask = stream_is_capturing.load(std::memory_order_acquire);
  // CU_STREAM_LEGACY is 1.
  if (ask == nullptr || reinterpret_cast<uintptr_t>(stream) <= 1) return false;
  int status = 0;
  return ask(stream, &status) == 0 && status != 0;
}

}  // namespace rewire::shim
