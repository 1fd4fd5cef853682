#include "reconfig/stream/allocation.h"

#include <string>

#include "reconfig/base/cuda_driver.h"

namespace rewire {

uint64_t AllocationOf(const StatePlace& place) {
  if (place.kind != MemoryKind::kDevice || place.data == nullptr) return 0;
  std::string error;
  const CudaDriver* const driver = CudaDriver::Get(&error);
  if (driver == nullptr || driver->CtxSetCurrent(place.context) != CUDA_SUCCESS) return 0;
  unsigned long long number = 0;
  const CUresult result = driver->PointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                                      reinterpret_cast<CUdeviceptr>(place.data));
  return result == CUDA_SUCCESS ? number : 0;
}

}  // namespace rewire
