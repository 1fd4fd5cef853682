#include "reconfig/base/cuda_driver.h"

#include <dlfcn.h>
#include <sched.h>
#include <time.h>

#include <algorithm>

#include "reconfig/base/settings.h"

namespace rewire {
namespace {

using GetProcAddress = CUresult (*)(const char* name, void** function, int version, uint64_t flags,
                                    CUdriverProcAddressQueryResult* status);

// Finds one function, or adds its name to *missing.
void* Find(void* library, GetProcAddress get, const char* name, const char* symbol, int version,
           std::string* missing) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (get != nullptr &&
      get(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_SUCCESS &&
      status == CU_GET_PROC_ADDRESS_SUCCESS && found != nullptr) {
    return found;
  }
  found = ::dlsym(library, symbol);
  if (found == nullptr) *missing += (missing->empty() ? "" : ", ") + std::string(symbol);
  return found;
}

// The fallback for an optional entry that the driver lacks.
template <typename... Arguments>
CUresult NotSupported(Arguments...) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

struct Loaded {
  CudaDriver driver{};
  std::string error;
};

// Most copies end within this number of yields, before the waiting thread starts to sleep.
constexpr int kYields = 200;
constexpr int64_t kFirstPause = 10'000;
constexpr int64_t kLongestPause = 500'000;

template <typename Query>
CUresult Wait(const Query& query, Duration patience) {
  const Time deadline = Now() + patience;
  int64_t pause = kFirstPause;
  for (int turn = 0;; ++turn) {
    const CUresult result = query();
    if (result != CUDA_ERROR_NOT_READY || Now() >= deadline) return result;
    if (turn < kYields) {
      sched_yield();
      continue;
    }
    const timespec time = {0, static_cast<decltype(timespec::tv_nsec)>(pause)};
    nanosleep(&time, nullptr);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace

std::string CudaDriver::Load(const std::string& library, CudaDriver* driver) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return "the CUDA driver " + library +
           " cannot be loaded: " + (reason != nullptr ? reason : "unknown reason");
  }
  const auto get = reinterpret_cast<GetProcAddress>(::dlsym(handle, "cuGetProcAddress_v2"));
  std::string missing, absent;
#define REWIRE_CUDA_ENTRY(member, name, symbol, version, arguments) \
  driver->member =                                                  \
      reinterpret_cast<CUresult(*) arguments>(Find(handle, get, name, symbol, version, &missing));
#define REWIRE_CUDA_OPTIONAL(member, name, symbol, version, arguments)                            \
  driver->member =                                                                                \
      reinterpret_cast<CUresult(*) arguments>(Find(handle, get, name, symbol, version, &absent)); \
  if (driver->member == nullptr) driver->member = NotSupported;
#include "reconfig/base/cuda_driver.def"
#undef REWIRE_CUDA_ENTRY
  if (missing.empty()) return {};
  ::dlclose(handle);
  return "the CUDA driver " + library + " lacks " + missing;
}

const CudaDriver* CudaDriver::Get(std::string* error) {
  static const Loaded* const loaded = [] {
    auto* result = new Loaded;
    result->error = Load(Settings::Get().cuda_library(), &result->driver);
    return result;
  }();
  if (loaded->error.empty()) return &loaded->driver;
  *error = loaded->error;
  return nullptr;
}

std::string CudaDriver::Describe(const char* call, CUresult result) const {
  const char* name = nullptr;
  if (GetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  return std::string(call) + ": " + name + " (" + std::to_string(static_cast<int>(result)) + ")";
}

CUresult WaitForStream(const CudaDriver& driver, CUstream stream, Duration patience) {
  return Wait([&] { return driver.StreamQuery(stream); }, patience);
}

CUresult WaitForEvent(const CudaDriver& driver, CUevent event, Duration patience) {
  return Wait([&] { return driver.EventQuery(event); }, patience);
}

std::string DescribeWait(const CudaDriver& driver, const std::string& operation, CUresult result,
                         Duration patience) {
  if (result != CUDA_ERROR_NOT_READY) return driver.Describe(operation.c_str(), result);
  return operation + ": timed out after " +
         std::to_string(static_cast<int64_t>(ToMilliseconds(patience))) +
         " ms (the device did not complete its work)";
}

}  // namespace rewire
