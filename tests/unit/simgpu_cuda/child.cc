// The second process of the simulated driver's tests: runs one scenario by name. Exits with the
// first result that is not success, or with 99 after another error. Ends itself after 30 s.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

#include "reconfig/base/mutex.h"
#include "tests/unit/simgpu_cuda/clock.h"
#include "tests/unit/simgpu_cuda/entries.h"
#include "tests/unit/simgpu_cuda/handle_text.h"
#include "tests/unit/simgpu_cuda/sharing.h"

namespace {

constexpr int kWrong = 99;

#define CHECK_CU(call) \
  if (const CUresult result = (call); result != CUDA_SUCCESS) return static_cast<int>(result)

int Start() {
  CUcontext context = nullptr;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(cuCtxSetCurrent(context));
  return 0;
}

// Opens another process's memory, finds "hello" in it, and leaves "world".
int Import(const char* text) {
  if (const int failed = Start()) return failed;
  CUdeviceptr memory = 0, again = 0;
  size_t before = 0, after = 0;
  CHECK_CU(cuMemGetInfo_v2(&before, nullptr));
  const CUipcMemHandle handle = simgpu_test::FromText(text);
  CHECK_CU(cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CHECK_CU(cuIpcOpenMemHandle_v2(&again, handle, 0));
  CHECK_CU(cuMemGetInfo_v2(&after, nullptr));
  if (again != memory || before != after) return kWrong;
  char seen[6] = {};
  CHECK_CU(cuMemcpyDtoH_v2(seen, memory, 6));
  if (std::strcmp(seen, "hello") != 0) return kWrong;
  CHECK_CU(cuMemcpyHtoD_v2(memory, "world", 6));
  if (cuMemFree_v2(memory) != CUDA_ERROR_INVALID_VALUE) return kWrong;
  CHECK_CU(cuIpcCloseMemHandle(memory));
  CHECK_CU(cuMemcpyDtoH_v2(seen, memory, 6));  // opened twice, closed once
  CHECK_CU(cuIpcCloseMemHandle(memory));
  return cuIpcCloseMemHandle(memory) == CUDA_ERROR_INVALID_VALUE ? 0 : kWrong;
}

// Prints a handle on stdout and runs until stdin ends.
int Export() {
  if (const int failed = Start()) return failed;
  CUdeviceptr memory = 0;
  CUipcMemHandle handle{};
  CHECK_CU(cuMemAlloc_v2(&memory, 4096));
  CHECK_CU(cuIpcGetMemHandle(&handle, memory));
  std::printf("%s\n", simgpu_test::ToText(handle).c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

// A kernel that records whether an allocation returned while the kernel was running.
struct Watch {
  rewire::Mutex mutex;
  rewire::CondVar changed;
  bool running REWIRE_GUARDED_BY(mutex) = false;
  bool returned REWIRE_GUARDED_BY(mutex) = false;
  std::atomic<bool> overtaken{false};
};

void RunWatch(void* data) {
  auto* watch = static_cast<Watch*>(data);
  const rewire::Time deadline = rewire::Now() + rewire::milliseconds(300);
  rewire::MutexLock lock(&watch->mutex);
  watch->running = true;
  watch->changed.NotifyAll();
  while (!watch->returned && watch->changed.WaitUntil(&watch->mutex, deadline)) {
  }
  watch->overtaken = watch->returned;
}

// Prints whether an allocation overtakes a running kernel.
int Allocate() {
  if (const int failed = Start()) return failed;
  static Watch watch;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuSimLaunchKernel(stream, &RunWatch, &watch));
  {
    rewire::MutexLock lock(&watch.mutex);
    while (!watch.running)
      watch.changed.WaitUntil(&watch.mutex, rewire::Now() + rewire::seconds(1));
  }
  CHECK_CU(cuMemAlloc_v2(&memory, 64));
  {
    rewire::MutexLock lock(&watch.mutex);
    watch.returned = true;
    watch.changed.NotifyAll();
  }
  CHECK_CU(cuStreamSynchronize(stream));
  std::printf("%s\n", watch.overtaken ? "overtakes" : "waits");
  return 0;
}

// A child of a process that has used the driver: every call fails, none hangs.
int Fork() {
  if (const int failed = Start()) return failed;
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, 0));
  CHECK_CU(cuLaunchHostFunc(
      stream, [](void*) {}, nullptr));
  const pid_t pid = ::fork();
  if (pid == 0) {
    CUdeviceptr memory = 0;
    const bool refused = cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuMemAlloc_v2(&memory, 1) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuStreamSynchronize(stream) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuStreamDestroy_v2(stream) == CUDA_ERROR_NOT_INITIALIZED;
    ::_exit(refused ? 0 : kWrong);
  }
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return kWrong;
  CHECK_CU(cuStreamSynchronize(stream));  // the parent continues
  return WEXITSTATUS(status);
}

// Exits while streams, threads and a context exist.
int Exit() {
  if (const int failed = Start()) return failed;
  for (int i = 0; i < 4; ++i) {
    CUstream stream = nullptr;
    CHECK_CU(cuStreamCreate(&stream, 0));
    CHECK_CU(cuLaunchHostFunc(
        stream, [](void*) {}, nullptr));
    CHECK_CU(cuStreamSynchronize(stream));
  }
  return 0;
}

int BeforeInit() {
  CUdeviceptr memory = 0;
  int count = 0;
  const bool refused = cuMemAlloc_v2(&memory, 1) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuInit(1) == CUDA_ERROR_INVALID_VALUE;
  return refused ? 0 : kWrong;
}

}  // namespace

int main(int argc, char** argv) {
  ::alarm(30);
  const std::string_view scenario = argc > 1 ? argv[1] : "";
  if (scenario == "start") return Start();
  if (scenario == "import" && argc == 3) return Import(argv[2]);
  if (scenario == "export") return Export();
  if (scenario == "allocate") return Allocate();
  if (scenario == "fork") return Fork();
  if (scenario == "exit") return Exit();
  if (scenario == "before_init") return BeforeInit();
  if (scenario.starts_with("clock")) {
    if (const int failed = Start()) return failed;
    if (scenario == "clock_write" && argc == 3) return simgpu_test::ClockWrite(argv[2]);
    return scenario == "clock" ? simgpu_test::Clock() : simgpu_test::ClockWait();
  }
  if (scenario == "share" || scenario == "attach") {
    if (const int failed = Start()) return failed;
    return scenario == "share" ? simgpu_test::Share() : simgpu_test::Attach();
  }
  return kWrong;
}
