#include "reconfig/state/stream/allocation.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::state {

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
