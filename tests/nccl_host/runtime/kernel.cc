// Kernels: a library registers them by the address of their host function, as nvcc's code does, and
// reports its NCCL version (kernel_table.h). The launches run the emulated kernels. Thread-safe.
#include "tests/nccl_host/kernels/kernel.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tests/nccl_host/runtime/kernel_table.h"
#include "tests/nccl_host/runtime/runtime.h"
#include "tests/simgpu/nccl/reduction.h"

// Declared as in tests/simgpu/cuda/extensions.h, which cannot be included together with cuda.h.
extern "C" CUresult cuSimCreateFunction(CUfunction* function,
                                        void (*run)(void*, const void*, unsigned int),
                                        void* context) noexcept;

namespace nccl_host {
namespace {

struct Kernel {
  std::string name;
  const FunctionTable* table;
  CUfunction function = nullptr;  // made at first use, because the driver is not ready before
};

struct Kernels {
  std::mutex mutex;
  std::unordered_map<const void*, Kernel> by_address;
};

Kernels& All() {
  static auto* const kernels = new Kernels;
  return *kernels;
}

void Run(void* context, const void* arguments, unsigned int blocks) {
  const auto* const kernel = static_cast<const Kernel*>(context);
  if (kernel->name.find("ncclDevKernel") == std::string::npos) {
    std::fprintf(stderr, "nccl_host: kernel %s is not emulated\n", kernel->name.c_str());
    std::abort();
  }
  RunKernel(*kernel->table, arguments, blocks);
}

cudaError_t FindFunction(const void* address, CUfunction* function) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  const auto found = All().by_address.find(address);
  if (found == All().by_address.end()) return Keep(cudaErrorInvalidDeviceFunction);
  Kernel& kernel = found->second;
  if (kernel.function == nullptr) {
    const CUresult result = cuSimCreateFunction(&kernel.function, &Run, &kernel);
    if (result != CUDA_SUCCESS) return Keep(result);
  }
  *function = kernel.function;
  return cudaSuccess;
}

struct Scaling {
  void* target;
  const void* source;
  size_t count;
  ncclDataType_t type;
  simnccl::Operator op;
};

void Scale(void* argument) {
  const std::unique_ptr<Scaling> scaling(static_cast<Scaling*>(argument));
  simnccl::Scale(scaling->type, simnccl::Resolve(scaling->op, scaling->type), scaling->target,
                 scaling->source, scaling->count);
}

}  // namespace
}  // namespace nccl_host

using namespace nccl_host;

NCCL_HOST_EXPORT void** __cudaRegisterFatBinary(void* table) {
  const auto* const named = static_cast<const RewireKernelTable*>(table);
  if (named->magic != kRewireKernelTable) {
    std::fprintf(stderr, "nccl_host: a library with device code of its own cannot run here\n");
    std::abort();
  }
  return reinterpret_cast<void**>(
      new FunctionTable(named->version, named->functions, named->function_count));
}

NCCL_HOST_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
// The functions stay registered: streams may still run them while the process exits.
NCCL_HOST_EXPORT void __cudaUnregisterFatBinary(void**) {}

NCCL_HOST_EXPORT void __cudaRegisterFunction(void** table, const char* address, char*,
                                             const char* name, int, void*, void*, void*, void*,
                                             int*) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().by_address[address] = {name, reinterpret_cast<const FunctionTable*>(table)};
}

NCCL_HOST_EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* address) {
  NCCL_HOST_ENTER();
  return FindFunction(address, function);
}

NCCL_HOST_EXPORT cudaError_t cudaFuncSetAttribute(const void* address, cudaFuncAttribute, int) {
  NCCL_HOST_ENTER();
  CUfunction function = nullptr;
  return FindFunction(address, &function);
}

NCCL_HOST_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                                   const void* address) {
  NCCL_HOST_ENTER();
  *attributes = cudaFuncAttributes{};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 96;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  CUfunction function = nullptr;
  return FindFunction(address, &function);
}

NCCL_HOST_EXPORT cudaError_t rewireScaleElements(void* target, const void* source, size_t count,
                                                 int type, uint64_t scalar, int scalar_is_pointer,
                                                 cudaStream_t stream) {
  NCCL_HOST_ENTER();
  auto scaling = std::make_unique<Scaling>();
  *scaling = {target, source, count, static_cast<ncclDataType_t>(type), {}};
  scaling->op.scaled = true;
  if (scalar_is_pointer != 0) {
    scaling->op.device_scalar = reinterpret_cast<const void*>(scalar);
  } else {
    scaling->op.scalar = scalar;
  }
  const CUresult result = cuLaunchHostFunc(stream, &Scale, scaling.get());
  if (result == CUDA_SUCCESS) (void)scaling.release();
  return Keep(result);
}
