#include "tests/simgpu/cuda/driver.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/graph.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/physical_memory.h"
#include "tests/simgpu/cuda/stream.h"

namespace simgpu {
namespace {

std::atomic<Driver*> state{nullptr};
std::atomic<bool> forked{false};
thread_local bool in_host_function = false;

}  // namespace

CUresult Enter() {
  if (forked.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_INITIALIZED;
  if (state.load(std::memory_order_acquire) == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return in_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

Driver& State() { return *state.load(std::memory_order_acquire); }

void SetInHostFunction(bool value) { in_host_function = value; }

void Say(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "simgpu: %s\n", text);
}

void WaitForProgress() {
  Driver& driver = State();
  ++driver.waiters;
  driver.progress.WaitUntil(&driver_mutex, Now() + rewire::seconds(10));
  --driver.waiters;
}

void WaitFor(const MarkerRef& marker) {
  while (marker != nullptr && !marker->done) WaitForProgress();
}

void NotifyProgress() {
  if (State().waiters > 0) State().progress.NotifyAll();
}

Device* FindDevice(CUdevice device) {
  Driver& driver = State();
  if (device < 0 || static_cast<size_t>(device) >= driver.devices.size()) return nullptr;
  return driver.devices[static_cast<size_t>(device)].get();
}

}  // namespace simgpu

SIMGPU_EXPORT CUresult cuInit(unsigned int flags) noexcept {
  using namespace simgpu;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (forked.load()) {
    Say("cuInit in a child that was forked after cuInit: the driver does not survive a fork");
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  MutexLock lock(&driver_mutex);
  if (state.load() != nullptr) return CUDA_SUCCESS;
  auto driver = std::make_unique<Driver>();
  const std::string error = ReadSettings(environ, &driver->settings);
  if (!error.empty()) {
    Say("%s", error.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (int i = 0; i < driver->settings.devices; ++i) {
    driver->devices.push_back(std::make_unique<Device>());
    driver->devices.back()->ordinal = i;
  }
  ::pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  state.store(driver.release(), std::memory_order_release);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuDriverGetVersion(int* version) noexcept {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}
