// cudaGetDriverEntryPoint: returns the simulated driver's entry. For a call that is not simulated,
// it returns a function that reports the call's name when called. Thread-safe.
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "tests/nccl_host/runtime/runtime.h"

namespace {

constexpr size_t kMost = 256;  // different names in one process
// An entry is written once, before its function is returned, and never freed.
std::string* missing_names[kMost];

template <size_t kIndex>
CUresult Missing() {
  std::fprintf(stderr, "nccl_host: %s: the simulated driver has no such call\n",
               missing_names[kIndex]->c_str());
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <size_t... kIndex>
void* MissingAt(size_t index, std::index_sequence<kIndex...>) {
  static void* const functions[] = {reinterpret_cast<void*>(&Missing<kIndex>)...};
  return functions[index];
}

void* MissingEntry(const char* name) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  size_t index = 0;
  while (index < kMost && missing_names[index] != nullptr && *missing_names[index] != name) ++index;
  if (index == kMost) return nullptr;
  if (missing_names[index] == nullptr) missing_names[index] = new std::string(name);
  return MissingAt(index, std::make_index_sequence<kMost>());
}

bool IsSimulated(std::string_view name) {
  constexpr std::string_view kNames[] = {
#define SIMGPU_ENTRY(name, version, symbol) #name,
#include "tests/simgpu/cuda/entries.def"
#undef SIMGPU_ENTRY
  };
  for (const std::string_view known : kNames) {
    if (known == name) return true;
  }
  return false;
}

cudaError_t Find(const char* name, void** function, int version, unsigned long long flags,
                 cudaDriverEntryPointQueryResult* status) {
  CUresult result = CUDA_SUCCESS;
  if (IsSimulated(name)) {
    CUdriverProcAddressQueryResult found{};
    result = cuGetProcAddress(name, function, version, flags, &found);
  } else {
    *function = MissingEntry(name);
    if (*function == nullptr) result = CUDA_ERROR_NOT_FOUND;
  }
  if (status != nullptr) {
    *status =
        result == CUDA_SUCCESS ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return nccl_host::Keep(result);
}

}  // namespace

#if CUDART_VERSION >= 12050
NCCL_HOST_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned int version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* status) {
  return Find(name, function, static_cast<int>(version), flags, status);
}
#endif

#if CUDART_VERSION < 13000
NCCL_HOST_EXPORT cudaError_t cudaGetDriverEntryPoint(const char* name, void** function,
                                                     unsigned long long flags,
                                                     cudaDriverEntryPointQueryResult* status) {
  return Find(name, function, CUDART_VERSION, flags, status);
}
#endif
