#include "tests/unit/simgpu_cuda/sharing.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/unit/simgpu_cuda/descriptor.h"
#include "tests/unit/simgpu_cuda/virtual_memory.h"

namespace simgpu_test {
namespace {

constexpr int kSocket = 3;
constexpr int kWrong = 99;

#define CHECK_CU(call) \
  if (const CUresult result = (call); result != CUDA_SUCCESS) return static_cast<int>(result)

}  // namespace

int Share() {
  const CUmemAllocationProp properties = Properties(kDescriptor);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr memory = 0;
  int fd = -1;
  CHECK_CU(cuMemCreate(&handle, kPage, &properties, 0));
  CHECK_CU(cuMemAddressReserve(&memory, kPage, 0, 0, 0));
  CHECK_CU(cuMemMap(memory, kPage, 0, handle, 0));
  CHECK_CU(Grant(memory, kPage));
  CHECK_CU(cuMemcpyHtoD_v2(memory, "hello", 6));
  CHECK_CU(cuMemExportToShareableHandle(&fd, handle, kDescriptor, 0));
  CHECK_CU(cuMemRelease(handle));
  CHECK_CU(cuMemUnmap(memory, kPage));
  const bool sent = SendDescriptor(kSocket, fd);
  ::close(fd);
  return sent ? 0 : kWrong;
}

int Attach() {
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr memory = 0;
  size_t before = 0, after = 0;
  CHECK_CU(cuMemGetInfo_v2(&before, nullptr));
  const int fd = ReceiveDescriptor(kSocket);
  CHECK_CU(
      cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(intptr_t{fd}), kDescriptor));
  ::close(fd);
  CHECK_CU(cuMemAddressReserve(&memory, kPage, 0, 0, 0));
  CHECK_CU(cuMemMap(memory, kPage, 0, handle, 0));
  CHECK_CU(cuMemRelease(handle));
  char seen[6] = {};
  if (cuMemcpyDtoH_v2(seen, memory, 6) != CUDA_ERROR_INVALID_VALUE) return kWrong;
  CHECK_CU(Grant(memory, kPage));
  CHECK_CU(cuMemcpyDtoH_v2(seen, memory, 6));
  if (std::strcmp(seen, "hello") != 0) return kWrong;
  CHECK_CU(cuMemcpyHtoD_v2(memory, "world", 6));
  CHECK_CU(cuMemGetInfo_v2(&after, nullptr));
  if (before != after) return kWrong;  // the creating process counts the memory
  std::puts("attached");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

}  // namespace simgpu_test
