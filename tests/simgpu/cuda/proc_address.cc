// cuGetProcAddress: returns the newest ABI of a name that the requested version has. Prints a
// missing name on stderr: the log then names the function that the simulation lacks. Thread-safe.
#include <dlfcn.h>

#include <string_view>

#include "tests/simgpu/cuda/driver.h"

namespace {

struct Entry {
  std::string_view name;
  int version;
  const char* symbol;
};

constexpr Entry kEntries[] = {
#define SIMGPU_ENTRY(name, version, symbol) {#name, version, #symbol},
#include "tests/simgpu/cuda/entries.def"
#undef SIMGPU_ENTRY
};

}  // namespace

SIMGPU_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int version,
                                           uint64_t flags,
                                           CUdriverProcAddressQueryResult* status) noexcept;

namespace {

// The symbols are this library's own, even if the process has loaded another libcuda.so.1.
void* OwnSymbol(const char* symbol) {
  static void* const self = [] {
    Dl_info info{};
    const auto* inside = reinterpret_cast<const void*>(&cuGetProcAddress_v2);
    return ::dladdr(inside, &info) != 0 ? ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                                        : nullptr;
  }();
  return self == nullptr ? nullptr : ::dlsym(self, symbol);
}

}  // namespace

SIMGPU_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int version,
                                           uint64_t flags,
                                           CUdriverProcAddressQueryResult* status) noexcept {
  if (name == nullptr || function == nullptr || version < 0 || flags > 2) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *function = nullptr;
  CUdriverProcAddressQueryResult unused;
  if (status == nullptr) status = &unused;
  if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
    simgpu::Say("cuGetProcAddress(%s): per-thread variants are not simulated", name);
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const Entry* best = nullptr;
  bool known = false;
  for (const Entry& entry : kEntries) {
    if (entry.name != name) continue;
    known = true;
    if (entry.version <= version && (best == nullptr || entry.version > best->version)) {
      best = &entry;
    }
  }
  if (best != nullptr) {
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
    *function = OwnSymbol(best->symbol);
    return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  }
  *status =
      known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  simgpu::Say("cuGetProcAddress(%s, %d): %s", name, version,
              known ? "newer than the requested version" : "not simulated");
  return CUDA_ERROR_NOT_FOUND;
}

SIMGPU_EXPORT CUresult cuGetProcAddress(const char* name, void** function, int version,
                                        uint64_t flags) noexcept {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
