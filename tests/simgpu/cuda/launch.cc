// Launches of kernels. A running kernel occupies one of the device's slots, and as many processors
// as its threads. Thread-safe.
#include <cstring>
#include <memory>
#include <vector>

#include "reconfig/abi/cuda_types.h"
#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/function.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

namespace simgpu {

std::unordered_map<CUfunction, Function>& Functions() {
  static auto* const functions = new std::unordered_map<CUfunction, Function>;
  return *functions;
}

}  // namespace simgpu

using namespace simgpu;

namespace {

// Copies the arguments of a packed buffer; returns false if there is no buffer.
bool ReadPacked(void** extra, std::vector<char>* arguments) {
  const char* bytes = nullptr;
  size_t size = 0;
  for (; extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) bytes = static_cast<const char*>(extra[1]);
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<const size_t*>(extra[1]);
  }
  if (bytes == nullptr) return false;
  arguments->assign(bytes, bytes + size);
  return true;
}

// Returns the work that the launch runs on its stream's thread.
CUresult WorkOf(const Function& function, const CUlaunchConfig& config, const Device* device,
                void** parameters, void** extra, Work* work) REWIRE_REQUIRES(driver_mutex) {
  if (function.run != nullptr) {
    auto arguments = std::make_shared<std::vector<char>>();
    if (!ReadPacked(extra, arguments.get())) return CUDA_ERROR_INVALID_VALUE;
    *work = [run = function.run, context = function.context, arguments,
             blocks = config.gridDimX](uint64_t*) { run(context, arguments->data(), blocks); };
    return CUDA_SUCCESS;
  }
  if (parameters == nullptr || extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* const kernel = function.kernel;
  std::vector<uint64_t> arguments(kernel->parameters);
  for (size_t i = 0; i < arguments.size(); ++i) std::memcpy(&arguments[i], parameters[i], 8);
  // A real device reports this error in a later call and is unusable afterwards; here the launch
  // fails.
  if (!kernel->may_run(arguments.data(), device)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  *work = [kernel, arguments](uint64_t*) { kernel->run(arguments.data()); };
  return CUDA_SUCCESS;
}

// Returns the event of the launch's completion attribute, which is recorded when the kernel has
// started.
CUresult StartedEvent(const CUlaunchConfig& config, Event** event) REWIRE_REQUIRES(driver_mutex) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) continue;
    *event = FindEvent(attribute.value.launchCompletionEvent.event);
    if (*event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                        void** parameters, void** extra) noexcept {
  SIMGPU_ENTER();
  const auto found = Functions().find(function);
  if (found == Functions().end()) return CUDA_ERROR_INVALID_HANDLE;
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t threads = uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
  if (uint64_t{config->gridDimX} * config->gridDimY * config->gridDimZ == 0 || threads == 0 ||
      threads > 1024) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* target = nullptr;
  SIMGPU_TRY(FindStreamForWork(config->hStream, &target));
  Event* event = nullptr;
  SIMGPU_TRY(StartedEvent(*config, &event));
  if (CaptureOf(target) != nullptr) {
    if (event != nullptr) event->capture = target->capture;
    return CUDA_SUCCESS;
  }
  Operation operation;
  SIMGPU_TRY(WorkOf(found->second, *config, target->device, parameters, extra, &operation.work));
  operation.kernel = true;
  if (event != nullptr) {
    auto started = std::make_shared<Marker>();
    event->marker = started;
    event->capture = nullptr;
    operation.work = [started, work = std::move(operation.work)](uint64_t* clock) {
      {
        MutexLock lock(&driver_mutex);
        started->done = true;
        started->at = Now();
        started->clock = *clock;
        NotifyProgress();
      }
      work(clock);
    };
  }
  target->Enqueue(std::move(operation));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                      unsigned int grid_z, unsigned int block_x,
                                      unsigned int block_y, unsigned int block_z,
                                      unsigned int shared_bytes, CUstream stream, void** parameters,
                                      void** extra) noexcept {
  const CUlaunchConfig config = {grid_x,  grid_y,       grid_z, block_x, block_y,
                                 block_z, shared_bytes, stream, nullptr, 0};
  return cuLaunchKernelEx(&config, function, parameters, extra);
}

SIMGPU_EXPORT CUresult cuSimCreateFunction(CUfunction* function, cuSimKernel run,
                                           void* context) noexcept {
  SIMGPU_ENTER();
  if (function == nullptr || run == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = NewHandle<CUfunction>();
  Functions()[*function] = {nullptr, nullptr, run, context};
  return CUDA_SUCCESS;
}
