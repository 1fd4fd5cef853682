#include "tests/simgpu/nccl/driver.h"

#include <dlfcn.h>

#include <string>

#include "tests/simgpu/nccl/error.h"

namespace simnccl {
namespace {

struct Loaded {
  Driver driver{};
  std::string error;
};

template <typename F>
void Resolve(void* library, const char* name, F* target, std::string* error) {
  const std::string versioned = std::string(name) + "_v2";
  void* symbol = ::dlsym(library, versioned.c_str());
  if (symbol == nullptr) symbol = ::dlsym(library, name);
  if (symbol == nullptr && error->empty()) *error = std::string("libcuda.so.1 lacks ") + name;
  *target = reinterpret_cast<F>(symbol);
}

const Loaded& Load() {
  // The library is never unloaded: kernels of dead communicators may still be queued in it.
  static const Loaded* loaded = [] {
    auto* result = new Loaded;
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      const char* reason = ::dlerror();
      result->error = reason != nullptr ? reason : "libcuda.so.1 cannot be loaded";
      return result;
    }
    Driver& d = result->driver;
    std::string* e = &result->error;
    Resolve(library, "cuInit", &d.Init, e);
    Resolve(library, "cuCtxGetCurrent", &d.CtxGetCurrent, e);
    Resolve(library, "cuCtxSetCurrent", &d.CtxSetCurrent, e);
    Resolve(library, "cuCtxGetDevice", &d.CtxGetDevice, e);
    Resolve(library, "cuDevicePrimaryCtxRetain", &d.DevicePrimaryCtxRetain, e);
    Resolve(library, "cuDevicePrimaryCtxRelease", &d.DevicePrimaryCtxRelease, e);
    Resolve(library, "cuDeviceGetCount", &d.DeviceGetCount, e);
    Resolve(library, "cuDeviceGetPCIBusId", &d.DeviceGetPCIBusId, e);
    Resolve(library, "cuMemAlloc", &d.MemAlloc, e);
    Resolve(library, "cuMemFree", &d.MemFree, e);
    Resolve(library, "cuEventCreate", &d.EventCreate, e);
    Resolve(library, "cuEventDestroy", &d.EventDestroy, e);
    Resolve(library, "cuEventRecord", &d.EventRecord, e);
    Resolve(library, "cuStreamWaitEvent", &d.StreamWaitEvent, e);
    Resolve(library, "cuStreamIsCapturing", &d.StreamIsCapturing, e);
    Resolve(library, "cuSimLaunchKernel", &d.SimLaunchKernel, e);
    if (e->empty() && d.Init(0) != 0) *e = "cuInit failed";
    return result;
  }();
  return *loaded;
}

}  // namespace

ncclResult_t Driver::Get(const Driver** driver) {
  const Loaded& loaded = Load();
  if (!loaded.error.empty()) {
    return Fail(ncclUnhandledCudaError, "the simulated driver: %s", loaded.error.c_str());
  }
  *driver = &loaded.driver;
  return ncclSuccess;
}

ncclResult_t CheckCuda(int result, const char* call) {
  if (result == 0) return ncclSuccess;
  return Fail(ncclUnhandledCudaError, "Cuda failure %d in %s", result, call);
}

ContextScope::ContextScope(const Driver* driver, CuContext context) : driver_(driver) {
  if (driver_->CtxGetCurrent(&previous_) == 0 && previous_ != context) {
    changed_ = driver_->CtxSetCurrent(context) == 0;
  }
}

ContextScope::~ContextScope() {
  if (changed_) driver_->CtxSetCurrent(previous_);
}

}  // namespace simnccl
