#include "tests/unit/simgpu_cuda/clock.h"

#include <cstdio>

#include "tests/unit/simgpu_cuda/entries.h"
#include "tests/unit/simgpu_cuda/handle_text.h"

#define CHECK_CU(call) \
  if (const CUresult checked = (call); checked != CUDA_SUCCESS) return static_cast<int>(checked)

namespace simgpu_test {
namespace {

void Nothing(void*) {}

}  // namespace

int Clock() {
  CUstream copies = nullptr, kernels = nullptr;
  CUevent begin = nullptr, copied = nullptr, ran = nullptr, both = nullptr;
  CUdeviceptr memory = 0;
  CHECK_CU(cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamCreate(&kernels, CU_STREAM_NON_BLOCKING));
  for (CUevent* event : {&begin, &copied, &ran, &both}) CHECK_CU(cuEventCreate(event, 0));
  CHECK_CU(cuMemAlloc_v2(&memory, 200000));
  CHECK_CU(cuEventRecord(begin, copies));
  CHECK_CU(cuMemcpyDtoDAsync_v2(memory, memory + 100000, 100000, copies));
  CHECK_CU(cuEventRecord(copied, copies));
  CHECK_CU(cuSimLaunchTimedKernel(kernels, &Nothing, nullptr, 250000));
  CHECK_CU(cuEventRecord(ran, kernels));
  CHECK_CU(cuStreamWaitEvent(copies, ran, 0));
  CHECK_CU(cuMemcpyDtoDAsync_v2(memory, memory + 100000, 100000, copies));
  CHECK_CU(cuEventRecord(both, copies));
  CHECK_CU(cuStreamSynchronize(copies));
  float copy = 0, kernel = 0, all = 0;
  CHECK_CU(cuEventElapsedTime(&copy, begin, copied));
  CHECK_CU(cuEventElapsedTime(&kernel, begin, ran));
  CHECK_CU(cuEventElapsedTime(&all, begin, both));
  std::printf("copy %.3f kernel %.3f both %.3f\n", copy, kernel, all);
  return 0;
}

int ClockWait() {
  CUstream stream = nullptr;
  CUdeviceptr word = 0;
  CUipcMemHandle handle{};
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuMemAlloc_v2(&word, 700));
  CHECK_CU(cuMemAlloc_v2(&word, 64));  // so that the memory begins inside a page
  CHECK_CU(cuMemsetD8_v2(word, 0, 64));
  CHECK_CU(cuCtxSynchronize());
  CHECK_CU(cuIpcGetMemHandle(&handle, word));
  std::printf("%s\n", ToText(handle).c_str());
  std::fflush(stdout);
  CHECK_CU(cuStreamWaitValue64_v2(stream, word + 8, 7, CU_STREAM_WAIT_VALUE_GEQ));
  uint64_t now = 0;
  CHECK_CU(cuSimAdvanceClock(stream, 5, &now));
  std::printf("%llu\n", static_cast<unsigned long long>(now));
  return 0;
}

int ClockWrite(const char* text) {
  CUstream stream = nullptr;
  CUdeviceptr word = 0, own = 0;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuMemAlloc_v2(&own, 64));
  CHECK_CU(cuIpcOpenMemHandle_v2(&word, FromText(text), 0));
  CHECK_CU(cuSimLaunchTimedKernel(stream, &Nothing, nullptr, 123000));
  CHECK_CU(cuMemcpyDtoDAsync_v2(own, word, 64, stream));
  CHECK_CU(cuStreamWriteValue64_v2(stream, word + 8, 7, 0));
  CHECK_CU(cuStreamSynchronize(stream));
  return 0;
}

}  // namespace simgpu_test
