// The few driver calls of the simulated NCCL, resolved from libcuda.so.1 at first use. Thread-safe.
// The CPU can address the simulated driver's device memory, so the "kernels" and the progress
// thread can access it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reconfig/abi/nccl_types.h"

namespace simnccl {

using CuContext = void*;
using CuEvent = void*;

struct Driver {
  int (*Init)(unsigned);
  int (*CtxGetCurrent)(CuContext*);
  int (*CtxSetCurrent)(CuContext);
  int (*CtxGetDevice)(int*);
  int (*DevicePrimaryCtxRetain)(CuContext*, int);
  int (*DevicePrimaryCtxRelease)(int);
  int (*DeviceGetCount)(int*);
  int (*DeviceGetPCIBusId)(char*, int, int);
  int (*MemAlloc)(uint64_t*, size_t);
  int (*MemFree)(uint64_t);
  int (*EventCreate)(CuEvent*, unsigned);
  int (*EventDestroy)(CuEvent);
  int (*EventRecord)(CuEvent, cudaStream_t);
  int (*StreamWaitEvent)(cudaStream_t, CuEvent, unsigned);
  int (*StreamIsCapturing)(cudaStream_t, int*);
  int (*SimLaunchKernel)(cudaStream_t, void (*)(void*), void*);

  // Returns the table, or an error that names the missing symbol.
  static ncclResult_t Get(const Driver** driver);
};

// Returns ncclSuccess, or ncclUnhandledCudaError with the call's name.
ncclResult_t CheckCuda(int result, const char* call);
#define SIMNCCL_CU(call) SIMNCCL_TRY(::simnccl::CheckCuda((call), #call))

// Makes a context current on this thread and puts the previous one back.
class ContextScope {
 public:
  ContextScope(const Driver* driver, CuContext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver* const driver_;
  CuContext previous_ = nullptr;
  bool changed_ = false;
};

}  // namespace simnccl
